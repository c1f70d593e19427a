"""How an operation of PopLibs joins a sequence: a function of JAX, tensors, and a mapping.

An elementwise operation runs where its output lies, and its output lies as its first operand; what
tiles any other operation takes, the planner of ordinary programs says, and its outputs are spread
linearly.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.operators import LAUNCH_CYCLES, linear_tile_bounds, tile_cycles_of
from ipujax.poplar.element_types import Type, type_of_dtype
from ipujax.poplar.exceptions import check, index_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE
from ipujax.poplar.program import Operation
from ipujax.poplar.program import Sequence as ProgramSequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_places import user_place
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
      name: of the operation.
      function: of arrays, or of the numbers that are given as such.
      operands: tensors, whose shapes broadcast, and numbers.
      out: the tensor to write; a new one by default, on the tiles of the first operand that has
        the output's shape.
      in_place: whether the first operand is written.
      keeps_type: whether the result must be of the type of the first tensor, or BOOL.
      cycles: cycles of a tile for so many elements, launch not counted; those of the planner's
        formulas by default.
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
            where=user_place(),
            fix="popops.cast it first",
        )
    if out is None:
        like = next((t for t in tensors if tuple(t.shape()) == shape), None)
        out = _add_output(graph, name, jax.ShapeDtypeStruct(shape, result_aval.dtype), like)
    _check_output(name, out, jax.ShapeDtypeStruct(shape, result_aval.dtype), is_exact=not in_place)

    def run(*arrays: jax.Array) -> list[jax.Array]:
        value = jax.numpy.broadcast_to(call(*arrays), shape)
        return [value.astype(out.type.dtype)]

    def of_tile(count: int) -> float:
        avals = [
            jax.ShapeDtypeStruct((count,) if tensor.numElements() > 1 else (), tensor.type.dtype)
            for tensor in tensors
        ]
        chip = graph.getTarget().chip
        return max(0, tile_cycles_of(lambda arrays: call(*arrays), avals, chip) - LAUNCH_CYCLES)

    prog.add(Operation(name, run, tensors, [out], cycles or of_tile))
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
      name: of the operation.
      function: of arrays and numbers -> an array, or several.
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
        raise index_error(f"{name} of {shapes}: {error}", where=user_place()) from error
    outputs: list[Tensor] = []
    for number, aval in enumerate(avals):
        out = outs[number] if number < len(outs) else None
        if out is None:
            out = _add_output(graph, name, aval, None)
        _check_output(name, out, aval, is_exact=True)
        outputs.append(out)
    prog.add(Operation(name, run, tensors, outputs))
    return outputs


@dc.dataclass(frozen=True, slots=True)
class Rest:
    """The name and type that follow the program in a call, told apart by their types.

    Attributes:
      title: the operation's name in reports, below the user's.
      type: the type of the output, if one is given.
    """

    title: str
    type: Type | None


def read_rest(name: str, rest: Sequence[Any]) -> Rest:
    """Reads a name, a type, options and plans; options and plans change nothing, and are noted."""
    title, type = name, None
    for each in rest:
        if isinstance(each, str):
            title = title_of(name, each)
        elif isinstance(each, Type):
            type = each
        elif isinstance(each, Mapping):
            for option in {*each} - _COMPUTED_OTHERWISE:
                _note_option(name, str(option))
        elif each is not None and not isinstance(each, PlanningCache):
            raise check.type_error(f"{name} takes no {each!r} after its program")
    return Rest(title, type)


_COMPUTED_OTHERWISE = {"groupNormStridedChannelGrouping"}
"""Options that change what is computed, which the operation itself reads."""


class PlanningCache:
    """Plans of products; the planner keeps its own."""


def title_of(name: str, context: Any) -> str:
    """Returns an operation's name in reports, below the user's."""
    context = check.require_instance(context, str, "debugContext")
    return f"{context}/{name}" if context else name


@check.guard
def addCodelets(graph: Graph) -> None:
    """Accepts what PopLibs needs before its vertices are used; here nothing does."""
    check.require_instance(graph, Graph, "graph")


@functools.cache
def _note_option(name: str, option: str) -> None:
    get_logger().info("option %r of PopLibs' %s changes nothing here", option, name)


def require_program_at(name: str, arguments: Sequence[Any], places: Sequence[int]) -> int:
    """Returns the place of the program among arguments, which tells overloads apart."""
    program_places = [i for i, each in enumerate(arguments) if isinstance(each, ProgramSequence)]
    if not program_places or program_places[0] not in places:
        raise check.type_error(
            f"{name} does not have the right arguments", f"help(...) of {name} lists them"
        )
    return program_places[0]


def map_tensor_linearly(graph: Graph, tensor: Tensor, first_tile: int = 0, **settings: int) -> int:
    """Spreads a tensor over tiles, as PopLibs' `mapTensorLinearly` does.

    Args:
      graph: the graph.
      tensor: the tensor.
      first_tile: where it begins; the last tile is followed by the first.
      **settings: `minimum_bytes` of a tile and elements of a `grain`, where they are others.

    Returns:
      The tile after the last that gets any.
    """
    tiles = graph.getTarget().getNumTiles()
    bounds = linear_tile_bounds(tensor.numElements(), tensor.type.size, tiles, **settings)
    owners = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    graph.put_on_tiles(tensor.elements.reshape(-1), (first_tile + owners) % tiles)
    return (first_tile + bounds.size - 1) % tiles


def _add_output(graph: Graph, name: str, aval: Any, like: Tensor | None) -> Tensor:
    out = graph.addVariable(type_of_dtype(aval.dtype), aval.shape, name)
    if like is not None and (graph.tile_of[like.elements] != NO_TILE).all():
        graph.tile_of[out.elements] = graph.tile_of[like.elements]
    else:
        map_tensor_linearly(graph, out)
    return out


def _check_output(name: str, out: Tensor, wanted: Any, *, is_exact: bool) -> None:
    if tuple(out.shape()) != tuple(wanted.shape):
        raise index_error(
            f"the output of {name} has shape {list(wanted.shape)}, and {out} has not",
            where=user_place(),
        )
    if is_exact and out.type.dtype != wanted.dtype:
        raise type_error(
            f"the output of {name} is {type_of_dtype(wanted.dtype)}, and {out} is not",
            where=user_place(),
        )


def _split_operands(
    graph: Graph, prog: ProgramSequence, operands: Sequence[Operand], function: Callable[..., Any]
) -> tuple[list[Tensor], Callable[..., Any]]:
    """Returns the tensors among operands, and the function of these alone."""
    check.require_instance(graph, Graph, "graph")
    check.require_instance(prog, ProgramSequence, "prog", "a program.Sequence")
    for each in operands:
        check.require_instance(each, (Tensor, int, float, bool, np.number), "an operand")
    tensors = [each for each in operands if isinstance(each, Tensor)]

    def call(*arrays: jax.Array) -> Any:
        remaining_arrays = iter(arrays)
        return function(*(next(remaining_arrays) if isinstance(o, Tensor) else o for o in operands))

    return tensors, call


def _broadcast_shapes(name: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(tuple(tensor.shape()) for tensor in tensors))
    except ValueError as error:
        shapes = " and ".join(str(tensor) for tensor in tensors)
        raise index_error(
            f"the shapes of {shapes} do not match in {name}", where=user_place()
        ) from error


def _aval(tensor: Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(tensor.shape()), tensor.type.dtype)
