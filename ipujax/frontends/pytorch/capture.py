"""Modules of PyTorch as graphs: `torch.export` traces them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ipujax.doors.graphs import Graph, Operators
from ipujax.errors import FrontendError, IPUError
from ipujax.frontends.checks import check
from ipujax.frontends.pytorch.aliasing import mutates_views
from ipujax.frontends.pytorch.arrays import aval_of
from ipujax.frontends.pytorch.backward import (
    BackwardUse,
    fold_backward,
    keep_backward,
    place_hooks,
)
from ipujax.frontends.pytorch.errors import missing_operators, untraceable
from ipujax.frontends.pytorch.nodes import graph_of
from ipujax.frontends.pytorch.rewrites import make_explicit
from ipujax.frontends.pytorch.trace import tracing
from ipujax.frontends.pytorch.traceable import quiet, traceable

Tensors = dict[str, torch.Tensor]


@dc.dataclass(frozen=True, eq=False)
class Captured:
    """A module, traced.

    Attributes:
      graph: of all its operators. Its inputs are variables, constants and user inputs, all by the
        names of the graph.
      variables: the module's parameters and buffers, by their names.
      trainable: the names of those parameters that require gradients.
      names: of each variable, those that it has in the graph.
      constants: other tensors, by their names in the graph.
      inputs: names in the graph of the user's inputs, flat; None for one that is a constant.
      examples: of each of these its shape and dtype, or the constant.
      in_tree: the structure of `(args, kwargs)`, as PyTorch tells it.
      out_tree: the structure of the outputs.
    """

    graph: Graph
    variables: Tensors
    trainable: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    constants: Tensors
    inputs: tuple[str | None, ...]
    examples: tuple[Any, ...]
    in_tree: Any
    out_tree: Any


class Refusals(NamedTuple):
    """What is wrong with a backward pass that the user wrote, so that there are no gradients.

    Attributes:
      variables: why there are none of variables; None if there are.
      inputs: the same of inputs.
    """

    variables: FrontendError | None
    inputs: FrontendError | None


def captured(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    operators: Operators,
    use: BackwardUse = BackwardUse.NONE,
) -> Captured:
    """Traces a module in its mode.

    Args:
      module: what to trace.
      args: of a call: tensors in any structure.
      kwargs: the same.
      operators: those that are there; others are decomposed into these, where PyTorch can.
      use: whose gradients are wanted: with any, backward passes that the user wrote are traced.

    Raises:
      FrontendError: (a `ValueError`) PyTorch cannot trace the module, or a backward pass of the
        user's, or operators are missing.
    """
    with keep_backward(module, use):
        return _captured_with_backward(module, args, kwargs, operators)


def captured_for_any_use(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    operators: Operators,
) -> tuple[Captured, Refusals]:
    """Traces a module that may be differentiated, or may not.

    Args: as those of `captured`.

    Returns:
      The module, and why it cannot be differentiated, if it cannot.
    """
    refusal: FrontendError | None = None
    for use in (BackwardUse.ALL, BackwardUse.PARAMETERS):
        with keep_backward(module, use) as kept:
            try:
                found = _captured_with_backward(module, args, kwargs, operators)
                return found, Refusals(None, refusal)
            except FrontendError as error:
                if not kept.has_any:
                    raise
                refusal = error
    return captured(module, args, kwargs, operators), Refusals(refusal, refusal)


def _captured_with_backward(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    operators: Operators,
) -> Captured:
    # With gradients, even of inputs alone, so that what is computed without them is told apart.
    with torch.enable_grad():
        program = _exported(module, tuple(args), dict(kwargs or {}))
    place_hooks(program)
    make_explicit(program)
    program, graph = _with_known_operators(program, operators)
    graph = fold_backward(graph)
    if missing := operators.missing(graph):
        raise missing_operators(missing)
    return _captured(module, program, graph)


def _exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExportedProgram:
    try:
        with tracing(), traceable():
            return torch.export.export(module, args, kwargs, strict=False)
    except IPUError:
        raise
    except Exception as error:
        raise untraceable(module, error) from error


def _with_known_operators(
    program: ExportedProgram, operators: Operators
) -> tuple[ExportedProgram, Graph]:
    """The program without views that are written to, and in terms of known operators if it can be.

    Operators of a table keep their form, as that of a convolution or a norm is what the machine
    model knows; the others are decomposed, until nothing gets better.
    """
    is_functional = not mutates_views(program.graph_module)
    graph = graph_of(program)
    while True:
        missing = operators.missing(graph).keys()
        known = _decompositions(missing)
        if is_functional and not known:
            return program, graph
        with quiet():
            program = program.run_decompositions(known)
        is_functional, graph = True, graph_of(program)
        if operators.missing(graph).keys() == missing:
            return program, graph


def _decompositions(names: Iterable[str]) -> dict[Any, Any]:
    """Those of PyTorch's decompositions that are of these operators."""
    wanted = set(names)
    table = torch.export.default_decompositions() if wanted else {}
    return {op: rule for op, rule in table.items() if str(op) in wanted}


def _captured(module: torch.nn.Module, program: ExportedProgram, graph: Graph) -> Captured:
    """Sorts the inputs of a traced graph."""
    first = first_names(module)
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors |= dict(module.named_buffers(remove_duplicate=False))
    names: dict[str, tuple[str, ...]] = {}
    constants: Tensors = {}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: list[str | None] = []
    examples: list[Any] = []
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", None)
        if spec.kind is InputKind.USER_INPUT:
            is_tensor = name in graph.inputs
            inputs.append(name if is_tensor else None)
            examples.append(
                aval_of(placeholders[name].meta["val"])
                if is_tensor
                else getattr(spec.arg, "value", None)
            )
        elif spec.target in tensors:
            variable = first[id(tensors[spec.target])]
            names[variable] = (*names.get(variable, ()), str(name))
        elif isinstance(held := program.constants.get(str(spec.target)), torch.Tensor):
            constants[str(name)] = held
        else:
            raise check.refuse(
                f"the module holds {spec.target!r}, which is no tensor",
                "compute with tensors, numbers and what is made of them alone",
            )
    variables = {name: named[name] for name in named if first[id(named[name])] == name}
    trainable = tuple(n for n, p in module.named_parameters() if p.requires_grad)
    specs = program.call_spec
    return Captured(
        graph, variables, trainable, names, constants, tuple(inputs), tuple(examples),
        specs.in_spec, specs.out_spec,
    )  # fmt: skip


def first_names(module: torch.nn.Module) -> dict[int, str]:
    """The name of each parameter and buffer, by `id`: the first of those that it has."""
    names: dict[int, str] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        names.setdefault(id(tensor), name)
    return names
