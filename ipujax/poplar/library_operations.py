"""How operations of PopLibs are added to programs: a JAX function, its tensors, their mapping.

An elementwise operation runs where its output lies, and its output lies as its first operand; the
planner of ordinary programs chooses the tiles of any other operation, whose outputs are mapped
linearly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.operators import LAUNCH_CYCLES, tile_cycles_of
from ipujax.poplar.element_types import Type, type_of_dtype
from ipujax.poplar.exceptions import check, index_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE
from ipujax.poplar.program import Operation
from ipujax.poplar.program import Sequence as ProgramSequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line
from ipujax.system import get_logger

Operand = Tensor | int | float | bool


def add_elementwise(
    graph: Graph,
    prog: ProgramSequence,
    name: str,
    function: Callable[..., Any],
    operands: Sequence[Operand],
    *,
    out: Tensor | None = None,
    in_place: bool = False,
    keeps_type: bool = False,
    cycles: Callable[[int], float] | None = None,
) -> Tensor:
    """Adds an elementwise operation, and returns its output.

    Args:
      graph: the graph.
      prog: the sequence.
      name: the operation's name in reports.
      function: a function of the operands: arrays for tensors, and numbers as they are.
      operands: tensors, whose shapes broadcast, and numbers.
      out: the tensor to write; a new one by default, on the tiles of the first operand that has
        the output's shape.
      in_place: whether the first operand is written.
      keeps_type: whether the result must be of the type of the first tensor, or BOOL.
      cycles: number of elements -> cycles of a tile without the launch; by the planner's formulas
        by default.
    """
    tensors, call = _split_operands(graph, prog, operands, function)
    out = tensors[0] if in_place else out
    if out is not None and not tensors:
        shape = tuple(out.shape())
    else:
        shape = _broadcast_shapes(name, tensors)
    result_aval = jax.eval_shape(call, *(_aval(tensor) for tensor in tensors))
    if keeps_type and tensors and result_aval.dtype not in (tensors[0].type.dtype, np.bool_):
        raise type_error(
            f"{name} of {tensors[0]} would be {type_of_dtype(result_aval.dtype)}",
            where=user_line(),
            fix="popops.cast it first",
        )
    if out is None:
        like = next((t for t in tensors if tuple(t.shape()) == shape), None)
        out = _add_output(graph, name, jax.ShapeDtypeStruct(shape, result_aval.dtype), like)
    _check_output(name, out, jax.ShapeDtypeStruct(shape, result_aval.dtype), is_exact=not in_place)

    def run(*arrays: jax.Array) -> list[jax.Array]:
        value = jax.numpy.broadcast_to(call(*arrays), shape)
        return [value.astype(out.type.dtype)]

    def planner_cycles(count: int) -> float:
        avals = [
            jax.ShapeDtypeStruct((count,) if tensor.numElements() > 1 else (), tensor.type.dtype)
            for tensor in tensors
        ]
        chip = graph.getTarget().chip
        return max(0, tile_cycles_of(lambda arrays: call(*arrays), avals, chip) - LAUNCH_CYCLES)

    prog.add(Operation(name, run, tensors, [out], cycles or planner_cycles))
    return out


def add_planned(
    graph: Graph,
    prog: ProgramSequence,
    name: str,
    function: Callable[..., Any],
    operands: Sequence[Operand],
    *,
    outs: Sequence[Tensor | None] = (),
) -> list[Tensor]:
    """Adds an operation whose tiles the planner chooses, and returns its outputs.

    Args:
      graph: the graph.
      prog: the sequence.
      name: the operation's name in reports.
      function: a function of arrays and numbers that returns an array, or several.
      operands: tensors and numbers.
      outs: the tensors to write; for None, and where there are none, new ones are spread linearly.
    """
    tensors, call = _split_operands(graph, prog, operands, function)

    def run(*arrays: jax.Array) -> list[jax.Array]:
        results = call(*arrays)
        return [*results] if isinstance(results, (tuple, list)) else [results]

    try:
        avals = jax.eval_shape(run, *(_aval(tensor) for tensor in tensors))
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(tensor) for tensor in tensors)
        raise index_error(f"{name} of {shapes}: {error}", where=user_line()) from error
    outputs: list[Tensor] = []
    for number, aval in enumerate(avals):
        out = outs[number] if number < len(outs) else None
        if out is None:
            out = _add_output(graph, name, aval, None)
        _check_output(name, out, aval, is_exact=True)
        outputs.append(out)
    prog.add(Operation(name, run, tensors, outputs))
    return outputs


def read_title(name: str, trailing_arguments: Sequence[Any]) -> str:
    """Returns an operation's name in reports, from the arguments that follow its program.

    These are a name, a type, options and plans, in any order. Options and plans change nothing;
    options are noted in the log.

    Raises:
      type_error: an argument that is none of them.
    """
    title = name
    for argument in trailing_arguments:
        if isinstance(argument, str):
            title = title_of(name, argument)
        elif isinstance(argument, Mapping):
            for option in {*argument} - _OPTIONS_WITH_EFFECT:
                _log_option(name, str(option))
        elif argument is not None and not isinstance(argument, (Type, PlanningCache)):
            raise check.type_error(f"{name} takes no {argument!r} after its program")
    return title


_OPTIONS_WITH_EFFECT = {"groupNormStridedChannelGrouping"}
"""Options that change what is computed: the operation itself reads them."""


class PlanningCache:
    """A cache of plans, accepted and unused: the planner keeps its own."""


def title_of(name: str, context: Any) -> str:
    """Returns an operation's name in reports, below the user's."""
    context = check.require_instance(context, str, "debugContext")
    return f"{context}/{name}" if context else name


@check.guard
def addCodelets(graph: Graph) -> None:
    """Does nothing: PopLibs' operations need no codelets here."""
    check.require_instance(graph, Graph, "graph")


@functools.cache
def _log_option(name: str, option: str) -> None:
    get_logger().info("option %r of PopLibs' %s changes nothing here", option, name)


def split_at_program(
    name: str, arguments: tuple[Any, ...], operand_counts: Sequence[int]
) -> tuple[tuple[Any, ...], ProgramSequence, tuple[Any, ...]]:
    """Returns the operands of an overloaded function, its program, and the arguments after that.

    Args:
      name: the function's name.
      arguments: its arguments.
      operand_counts: how many operands may come before the program, by overload.
    """
    programs = (i for i, argument in enumerate(arguments) if isinstance(argument, ProgramSequence))
    count = next(programs, -1)
    if count not in operand_counts:
        raise check.type_error(
            f"{name} does not have the right arguments", f"help(...) of {name} lists them"
        )
    return arguments[:count], arguments[count], arguments[count + 1 :]


def _add_output(graph: Graph, name: str, aval: Any, like: Tensor | None) -> Tensor:
    out = graph.addVariable(type_of_dtype(aval.dtype), aval.shape, name)
    if like is not None and (graph.tile_of[like.elements] != NO_TILE).all():
        graph.tile_of[out.elements] = graph.tile_of[like.elements]
    else:
        graph.map_linearly(out)
    return out


def _check_output(name: str, out: Tensor, expected: Any, *, is_exact: bool) -> None:
    if tuple(out.shape()) != tuple(expected.shape):
        raise index_error(
            f"the output of {name} has shape {list(expected.shape)}, and {out} has not",
            where=user_line(),
        )
    if is_exact and out.type.dtype != expected.dtype:
        raise type_error(
            f"the output of {name} is {type_of_dtype(expected.dtype)}, and {out} is not",
            where=user_line(),
        )


def _split_operands(
    graph: Graph, prog: ProgramSequence, operands: Sequence[Operand], function: Callable[..., Any]
) -> tuple[list[Tensor], Callable[..., Any]]:
    """Returns the tensors among operands, and the function of these alone."""
    check.require_instance(graph, Graph, "graph")
    check.require_instance(prog, ProgramSequence, "prog", "a program.Sequence")
    for operand in operands:
        check.require_instance(operand, (Tensor, int, float, bool, np.number), "an operand")
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]

    def call(*arrays: jax.Array) -> Any:
        remaining_arrays = iter(arrays)
        return function(
            *(
                next(remaining_arrays) if isinstance(operand, Tensor) else operand
                for operand in operands
            )
        )

    return tensors, call


def _broadcast_shapes(name: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(tuple(tensor.shape()) for tensor in tensors))
    except ValueError as error:
        shapes = " and ".join(str(tensor) for tensor in tensors)
        raise index_error(
            f"the shapes of {shapes} do not match in {name}", where=user_line()
        ) from error


def _aval(tensor: Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(tensor.shape()), tensor.type.dtype)
