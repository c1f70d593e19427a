"""Tracing of PyTorch modules to graphs with `torch.export`."""

from __future__ import annotations

import dataclasses as dc
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ipujax.doors.graphs import Graph, Operators
from ipujax.doors.models import check
from ipujax.doors.torch.aliasing import mutates_views
from ipujax.doors.torch.backward import BackwardUse, fold_user_backward, keep_backward, place_hooks
from ipujax.doors.torch.export_nodes import convert_exported_program
from ipujax.doors.torch.export_substitutes import silence_export_warnings, substitute_untraceable
from ipujax.doors.torch.rewrites import make_contexts_explicit
from ipujax.doors.torch.tensor_arrays import aval_of_tensor
from ipujax.doors.torch.torch_errors import missing_operators_error, untraceable_module_error
from ipujax.doors.torch.trace import tracing
from ipujax.ground import FrontendError, IPUError

Tensors = dict[str, torch.Tensor]

# `torch.export` keeps what it traces in global variables, so that one thread at a time may trace.
_tracing_lock = threading.RLock()


@dc.dataclass(frozen=True, eq=False)
class ModuleTrace:
    """A traced module: its graph, its variables and the structure of its inputs.

    Attributes:
      graph: the module's operators. The graph's inputs are the variables, constants and user
        inputs, by their names in the graph.
      variables: the module's parameters and buffers, by their names.
      trainable: the names of the parameters that require gradients.
      names: for each variable, its names in the graph.
      constants: all other tensors, by their names in the graph.
      inputs: the names in the graph of the flat user inputs; None for an input that is a constant.
      examples: for each user input, its shape and dtype, or the constant.
      in_tree: the structure of `(args, kwargs)`, as a PyTorch tree spec.
      out_tree: the structure of the outputs.
    """

    graph: Graph
    variables: Tensors
    trainable: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    constants: Tensors
    inputs: tuple[str | None, ...]
    examples: tuple[object, ...]
    in_tree: object
    out_tree: Any


class Refusals(NamedTuple):
    """The reasons why a user-written backward pass cannot be traced.

    Attributes:
      variables: why variables have no gradients; None if they have.
      inputs: why inputs have no gradients; None if they have.
    """

    variables: FrontendError | None
    inputs: FrontendError | None


def trace_torch_module(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    operators: Operators,
    use: BackwardUse = BackwardUse.NONE,
) -> ModuleTrace:
    """Traces a module in its current training or evaluation mode.

    Args:
      module: the module to trace.
      args: the positional arguments of a call: tensors in any structure.
      kwargs: the keyword arguments of the call.
      operators: the known operators; PyTorch decomposes others into these where it can.
      use: the values whose gradients are needed; if any, user-written backward passes are traced.

    Raises:
      FrontendError: (a `ValueError`) PyTorch cannot trace the module, or a backward pass of the
        user's, or operators are missing.
    """
    with _tracing_lock, keep_backward(module, use):
        return _trace_with_backward(module, args, kwargs, operators)


def trace_torch_module_for_any_use(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    operators: Operators,
) -> tuple[ModuleTrace, Refusals]:
    """Traces a module with gradients where possible, else without.

    The arguments are those of `trace_torch_module`.

    Returns:
      The trace, and the reasons why variables or inputs have no gradients.
    """
    refusal: FrontendError | None = None
    for use in (BackwardUse.ALL, BackwardUse.PARAMETERS):
        with _tracing_lock, keep_backward(module, use) as kept_backward:
            try:
                module_trace = _trace_with_backward(module, args, kwargs, operators)
                return module_trace, Refusals(None, refusal)
            except FrontendError as error:
                if not kept_backward.has_any:
                    raise
                refusal = error
    return trace_torch_module(module, args, kwargs, operators), Refusals(refusal, refusal)


def _trace_with_backward(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    operators: Operators,
) -> ModuleTrace:
    # Gradients are enabled so that the trace shows what is computed under `torch.no_grad()`.
    with torch.enable_grad():
        program = _export_module(module, tuple(args), dict(kwargs or {}))
    place_hooks(program)
    make_contexts_explicit(program)
    program, graph = _decompose_unknown_operators(program, operators)
    graph = fold_user_backward(graph)
    if missing := operators.missing(graph):
        raise missing_operators_error(missing)
    return _sort_graph_inputs(module, program, graph)


def _export_module(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> ExportedProgram:
    try:
        with tracing(), substitute_untraceable():
            return torch.export.export(module, args, kwargs, strict=False)
    except IPUError:
        raise
    except Exception as error:
        raise untraceable_module_error(module, error) from error


def _decompose_unknown_operators(
    program: ExportedProgram, operators: Operators
) -> tuple[ExportedProgram, Graph]:
    """Decomposes unknown operators and in-place writes to views, where PyTorch can.

    Operators of the table stay as they are, since the machine model knows convolutions and norms as
    such; others are decomposed until the set of missing operators stays the same.
    """
    is_functional = not mutates_views(program.graph_module)
    graph = convert_exported_program(program)
    while (missing := operators.missing(graph).keys()) or not is_functional:
        with silence_export_warnings():
            # Operators that return views of their operands are decomposed without being asked for.
            program = program.run_decompositions(_find_decompositions(missing))
        is_functional, graph = True, convert_exported_program(program)
        if operators.missing(graph).keys() == missing:
            break
    return program, graph


def _find_decompositions(names: Iterable[str]) -> dict[Any, Any]:
    """Returns PyTorch's decompositions of some operators."""
    operator_names = set(names)
    table = torch.export.default_decompositions() if operator_names else {}
    return {op: rule for op, rule in table.items() if str(op) in operator_names}


def _sort_graph_inputs(
    module: torch.nn.Module, program: ExportedProgram, graph: Graph
) -> ModuleTrace:
    """Sorts the inputs of a traced graph into variables, constants and user inputs."""
    first_name_of = first_name_of_tensors(module)
    tensor_of_name = dict(module.named_parameters()) | dict(module.named_buffers())
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors |= dict(module.named_buffers(remove_duplicate=False))
    names: dict[str, tuple[str, ...]] = {}
    constants: Tensors = {}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: list[str | None] = []
    examples: list[object] = []
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", None)
        if spec.kind is InputKind.USER_INPUT:
            is_tensor = name in graph.inputs
            inputs.append(name if is_tensor else None)
            examples.append(
                aval_of_tensor(placeholders[name].meta["val"])
                if is_tensor
                else getattr(spec.arg, "value", None)
            )
        elif spec.target in tensors:
            variable = first_name_of[id(tensors[spec.target])]
            names[variable] = (*names.get(variable, ()), str(name))
        elif isinstance(constant := program.constants.get(str(spec.target)), torch.Tensor):
            constants[str(name)] = constant
        else:
            raise check.value_error(
                f"the module holds {spec.target!r}, which is no tensor",
                "compute only with tensors, numbers and structures of them",
            )
    variables = {
        name: tensor_of_name[name]
        for name in tensor_of_name
        if first_name_of[id(tensor_of_name[name])] == name
    }
    trainable = tuple(n for n, p in module.named_parameters() if p.requires_grad)
    specs = program.call_spec
    return ModuleTrace(
        graph, variables, trainable, names, constants, tuple(inputs), tuple(examples),
        specs.in_spec, specs.out_spec,
    )  # fmt: skip


def first_name_of_tensors(module: torch.nn.Module) -> dict[int, str]:
    """Returns the first name of each parameter and buffer, by `id`."""
    names: dict[int, str] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        names.setdefault(id(tensor), name)
    return names
