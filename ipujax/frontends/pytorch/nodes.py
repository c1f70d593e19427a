"""The nodes of PyTorch's graphs as ours."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.errors import FrontendError
from ipujax.frontends.pytorch.arrays import EXTREMES, aval_of, dtype_of
from ipujax.frontends.pytorch.errors import depends_on_values, is_users
from ipujax.frontends.pytorch.schema import is_higher_order, writes_in_place

# Operators whose schemas do not say that they write: the arguments that get the results after the
# first.
_WRITES_BESIDES = {"aten.batch_norm.default": (3, 4), "aten.instance_norm.default": (3, 4)}

_FRAME = re.compile(r'File "(.+?)", line (\d+), in ')


def graph_of(program: ExportedProgram) -> Graph:
    """A traced program as a graph of the user's outputs; inputs that change get new values."""
    signature = program.graph_signature
    graph = _graph_of(program.graph_module)
    targets = {str(spec.target): spec.arg.name for spec in signature.input_specs if spec.target}
    changed: list[Node] = []
    outputs: list[Any] = []
    for spec, value in zip(signature.output_specs, graph.outputs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            changed.append(_assignment(value, str(spec.target)))
        else:
            changed.append(_assignment(value, targets[str(spec.target)]))
    return Graph(graph.inputs, (*graph.nodes, *changed), tuple(outputs), graph.graphs)


def _assignment(value: Any, name: str) -> Node:
    return Node("assign", (value,), results=(name,), avals=(None,))


def _graph_of(module: torch.fx.GraphModule) -> Graph:
    inputs: list[str] = []
    nodes: list[Node] = []
    outputs: tuple[Any, ...] = ()
    graphs: dict[str, Graph] = {}
    whole: dict[str, list[str]] = {}  # all names of a tensor that operators in place have given it
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if isinstance(node.meta.get("val"), torch.Tensor):
                inputs.append(node.name)
        elif node.op == "get_attr":
            held = functools.reduce(getattr, str(node.target).split("."), module)
            if isinstance(held, torch.fx.GraphModule):
                graphs[node.name] = _graph_of(held)
            else:
                nodes.append(Node("constant", (held,), results=(node.name,), avals=(None,)))
        elif node.op == "output":
            outputs = tuple(_argument(item, graphs) for item in _flat_outputs(node.args[0]))
        else:
            _refuse_what_depends_on_values(node)
            _refuse_memory_in_another_order(node)
            nodes.extend(_nodes_of(node, graphs, whole))
    return Graph(tuple(inputs), tuple(nodes), outputs, graphs)


def _refuse_what_depends_on_values(node: Any) -> None:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    sizes = [size for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    if any(isinstance(v, torch.SymInt | torch.SymFloat | torch.SymBool) for v in (*values, *sizes)):
        raise depends_on_values(_name_of(node.target), _scope(node), _user_line(node))


def _refuse_memory_in_another_order(node: Any) -> None:
    """Strides speak of memory, and arrays of JAX are only in the order of their axes."""
    if not str(node.target).startswith(("aten.as_strided", "aten.resize")):
        return
    if not node.args[0].meta["val"].is_contiguous():
        name = _name_of(node.target)
        raise FrontendError(
            f"{name} is given a tensor whose memory is not in the order of its axes",
            where=_user_line(node),
            fix="call .clone(memory_format=torch.contiguous_format) before it",
        )


def _flat_outputs(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)


def _nodes_of(node: Any, graphs: dict[str, Graph], whole: dict[str, list[str]]) -> list[Node]:
    """A call, and what becomes of the tensors that it changes."""
    name = _name_of(node.target)
    args, kwargs = _argument(node.args, graphs), _argument(node.kwargs, graphs)
    results, avals = (node.name,), (_avals(node.meta.get("val")),)
    for position in _WRITES_BESIDES.get(name, ()):
        changed = args[position] if position < len(args) else None
        if isinstance(changed, Ref):
            results, avals = (*results, changed.name), (*avals, None)
    call = Node(
        _functional(name) if writes_in_place(node.target) else name,
        args, kwargs, results, avals, _scope(node), _user_line(node), node.meta.get("custom") or {},
    )  # fmt: skip
    if not writes_in_place(node.target):
        return [call]
    names = whole.setdefault(args[0].name, [args[0].name])
    names.append(node.name)
    whole[node.name] = names
    others = [other for other in names if other != node.name]
    return [call, *(_assignment(Ref(node.name), other) for other in others)]


def _name_of(target: Any) -> str:
    """An operator's name in the table."""
    if target is operator.getitem:
        return "getitem"
    return f"higher_order.{target}" if is_higher_order(target) else str(target)


def _functional(name: str) -> str:
    """`aten.add.Tensor`, which gives what `aten.add_.Tensor` does in place."""
    library, packet, overload = name.split(".")
    return f"{library}.{packet.removesuffix('_')}.{overload}"


def _scope(node: Any) -> str:
    """The path of the module that a node is in."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return str(path).removeprefix("L['self'].")


def _user_line(node: Any) -> str | None:
    """The innermost line that is the user's."""
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if is_users(f[0])]
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else None


def _avals(value: Any) -> Any:
    """Shapes and dtypes of a result; None for what is no tensor."""
    if isinstance(value, torch.Tensor):
        return aval_of(value)
    if isinstance(value, list | tuple):
        return [_avals(item) for item in value]
    return None


def _argument(value: Any, graphs: dict[str, Graph]) -> Any:
    """A node's argument: names for values, dtypes of JAX for those of PyTorch."""
    if isinstance(value, torch.fx.Node):
        return value.name if value.name in graphs else Ref(value.name)
    if isinstance(value, list | tuple):
        return tuple(_argument(item, graphs) for item in value)
    if isinstance(value, dict):
        return {name: _argument(item, graphs) for name, item in value.items()}
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    return EXTREMES.get(value, value) if isinstance(value, int) else value
