"""Conversion of PyTorch's FX nodes to the interpreter's nodes."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.doors.torch.schema import is_higher_order, writes_in_place
from ipujax.doors.torch.tensor_arrays import EXTREMES, aval_of_tensor, jax_dtype_of
from ipujax.doors.torch.torch_errors import data_dependence_error, is_user_code
from ipujax.ground import FrontendError, PyTree, SourceFrame

# Operators that write to arguments without a mark in their schemas: the positions of the arguments
# that receive the second and later results.
_UNDECLARED_WRITES = {"aten.batch_norm.default": (3, 4), "aten.instance_norm.default": (3, 4)}

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')


def convert_exported_program(program: ExportedProgram) -> Graph:
    """Converts a traced program to a graph; mutated inputs are assigned new values."""
    signature = program.graph_signature
    graph = _convert_graph_module(program.graph_module)
    targets = {str(spec.target): spec.arg.name for spec in signature.input_specs if spec.target}
    assignments: list[Node] = []
    outputs: list[Any] = []
    for spec, value in zip(signature.output_specs, graph.outputs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            assignments.append(_assign_node(value, str(spec.target)))
        else:
            assignments.append(_assign_node(value, targets[str(spec.target)]))
    return Graph(graph.inputs, (*graph.nodes, *assignments), tuple(outputs), graph.graphs)


def _assign_node(value: object, name: str) -> Node:
    return Node("assign", (value,), results=(name,), avals=(None,))


def _convert_graph_module(module: torch.fx.GraphModule) -> Graph:
    inputs: list[str] = []
    nodes: list[Node] = []
    outputs: tuple[Any, ...] = ()
    graphs: dict[str, Graph] = {}
    aliases_of: dict[str, list[str]] = {}  # all names that in-place operators gave a tensor
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if isinstance(node.meta.get("val"), torch.Tensor):
                inputs.append(node.name)
        elif node.op == "get_attr":
            attribute = functools.reduce(getattr, str(node.target).split("."), module)
            if isinstance(attribute, torch.fx.GraphModule):
                graphs[node.name] = _convert_graph_module(attribute)
            else:
                nodes.append(Node("constant", (attribute,), results=(node.name,), avals=(None,)))
        elif node.op == "output":
            outputs = tuple(_convert_argument(item, graphs) for item in _flat_outputs(node.args[0]))
        else:
            _refuse_data_dependence(node)
            _refuse_non_contiguous(node)
            nodes.extend(_convert_call(node, graphs, aliases_of))
    return Graph(tuple(inputs), tuple(nodes), outputs, graphs)


def _refuse_data_dependence(node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    sizes = [size for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    if any(isinstance(v, torch.SymInt | torch.SymFloat | torch.SymBool) for v in (*values, *sizes)):
        raise data_dependence_error(
            _operator_name(node.target), _module_path_of_node(node), _user_line_of_node(node)
        )


def _refuse_non_contiguous(node: Any) -> None:
    """Refuses strides of non-contiguous tensors: JAX arrays are always contiguous."""
    if not str(node.target).startswith(("aten.as_strided", "aten.resize")):
        return
    if not node.args[0].meta["val"].is_contiguous():
        name = _operator_name(node.target)
        raise FrontendError(
            f"{name} is given a tensor whose memory is not in the order of its axes",
            where=_user_line_of_node(node),
            fix="call .clone(memory_format=torch.contiguous_format) before it",
        )


def _flat_outputs(outputs: object) -> tuple[object, ...]:
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)


def _convert_call(
    node: torch.fx.Node, graphs: dict[str, Graph], aliases_of: dict[str, list[str]]
) -> list[Node]:
    """Converts a call, and adds assignments to the other names of the tensor it changes."""
    name = _operator_name(node.target)
    args, kwargs = _convert_argument(node.args, graphs), _convert_argument(node.kwargs, graphs)
    results, avals = (node.name,), (_avals_of_result(node.meta.get("val")),)
    for position in _UNDECLARED_WRITES.get(name, ()):
        written_argument = args[position] if position < len(args) else None
        if isinstance(written_argument, Ref):
            results, avals = (*results, written_argument.name), (*avals, None)
    call = Node(
        _functional_name(name) if writes_in_place(node.target) else name,
        args, kwargs, results, avals,
        _module_path_of_node(node), _user_line_of_node(node), node.meta.get("custom") or {},
        _user_frames_of_node(node),
    )  # fmt: skip
    if not writes_in_place(node.target):
        return [call]
    names = aliases_of.setdefault(args[0].name, [args[0].name])
    names.append(node.name)
    aliases_of[node.name] = names
    other_names = [other_name for other_name in names if other_name != node.name]
    return [call, *(_assign_node(Ref(node.name), other) for other in other_names)]


def _operator_name(target: Any) -> str:
    """Returns an operator's name in the table."""
    if target is operator.getitem:
        return "getitem"
    return f"higher_order.{target}" if is_higher_order(target) else str(target)


def _functional_name(name: str) -> str:
    """Returns `aten.add.Tensor` for the in-place operator `aten.add_.Tensor`."""
    library, packet, overload = name.split(".")
    is_dunder = packet.endswith("__")  # such as `__iand__`, the `&=` of Python
    packet = packet.replace("__i", "__", 1) if is_dunder else packet.removesuffix("_")
    return f"{library}.{packet}.{overload}"


def _module_path_of_node(node: torch.fx.Node) -> str:
    """Returns the path of the module that contains a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return str(path).removeprefix("L['self'].")


def _user_line_of_node(node: Any) -> str | None:
    """Returns the innermost line of user code in a node's stack trace."""
    frames = _user_frames_of_node(node)
    return str(frames[-1]) if frames else None


def _user_frames_of_node(node: Any) -> tuple[SourceFrame, ...]:
    """Returns the frames of user code in a node's stack trace, the outermost first."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return tuple(
        SourceFrame(file, int(line), function)
        for file, line, function in frames
        if is_user_code(file)
    )


def _avals_of_result(value: object) -> PyTree:
    """Returns shapes and dtypes of a result; None for values that are no tensors."""
    if isinstance(value, torch.Tensor):
        return aval_of_tensor(value)
    if isinstance(value, list | tuple):
        return [_avals_of_result(item) for item in value]
    return None


def _convert_argument(value: object, graphs: dict[str, Graph]) -> Any:
    """Converts a node's argument: values become `Ref`s, PyTorch dtypes become JAX dtypes."""
    if isinstance(value, torch.fx.Node):
        return value.name if value.name in graphs else Ref(value.name)
    if isinstance(value, list | tuple):
        return tuple(_convert_argument(item, graphs) for item in value)
    if isinstance(value, dict):
        return {name: _convert_argument(item, graphs) for name, item in value.items()}
    if isinstance(value, torch.dtype):
        return jax_dtype_of(value)
    return EXTREMES.get(value, value) if isinstance(value, int) else value
