"""poputil: mappings of tensors to tiles, copies, and names of vertex templates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.operators import linear_tile_bounds
from ipujax.poplar.devices import Target
from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.program import Copy
from ipujax.poplar.program import Sequence as ProgramSequence
from ipujax.poplar.regions import splitRegions as splitRegions
from ipujax.poplar.regions import splitRegionsBetweenWorkers as splitRegionsBetweenWorkers
from ipujax.poplar.tensors import Interval, Tensor, as_interval
from ipujax.poplar.user_lines import user_line


@check.guard
def mapTensorLinearly(
    graph: Graph, t: Tensor, minElementsPerTile: int | None = None, grainSize: int | None = None
) -> None:
    """Maps a tensor's elements to tiles, in their order, from tile 0 on.

    Args:
      graph: the graph.
      t: the tensor.
      minElementsPerTile: of a tile that has any; as many as 128 bytes have by default.
      grainSize: elements that stay together; as many as 8 bytes have by default.
    """
    graph.map_linearly(t, **_read_settings(t, minElementsPerTile, grainSize))


@check.guard
def mapTensorLinearlyWithOffset(graph: Graph, t: Tensor, *arguments: int | bool | None) -> int:
    """Maps a tensor like `mapTensorLinearly`, from another tile on; tile 0 follows the last tile.

    Args:
      graph: the graph.
      t: the tensor.
      *arguments: the first tile, 0 by default; or `minElementsPerTile, grainSize` and the first
        tile. A flag may follow, `ascendingOrder`: False goes down from the tile that is as far from
        the last one.

    Returns:
      The tile after the last that got any.
    """
    numbers, is_ascending = _split_order(arguments)
    if len(numbers) not in (0, 1, 3):
        raise check.type_error(
            f"mapTensorLinearlyWithOffset takes no {len(numbers)} numbers",
            "give the first tile, or minElementsPerTile, grainSize and the first tile",
        )
    *settings, first = (None, None, *(numbers or [0]))[-3:]
    first = check.require_integer(first, "offset", at_least=0)
    bounds = _bounds_of(graph, t, **_read_settings(t, *settings))
    order = _tiles_in_order(_count_tiles(graph), first, is_ascending=is_ascending)
    owners = order[np.repeat(np.arange(bounds.size - 1), np.diff(bounds))]
    graph.map_elements(t.elements.reshape(-1), owners)
    return int(order[(bounds.size - 1) % order.size])


@check.guard
def calcLinearTileMapping(graph: Graph | Target, t: Any, *arguments: Any) -> list[list[Interval]]:
    """Returns, for each tile, the intervals of a linear mapping.

    Args:
      graph: the graph, or a target.
      t: a tensor, or a shape.
      *arguments: after a tensor nothing, after a shape its type, or `minElementsPerTile` and
        `grainSize`; then the first tile and `ascendingOrder`, as for `mapTensorLinearlyWithOffset`.
    """
    numbers, is_ascending = _split_order(arguments)
    type = numbers.pop(0) if numbers and isinstance(numbers[0], Type) else None
    settings: dict[str, int] = {}
    if isinstance(t, Tensor):
        type, size = t.type, t.numElements()
    else:
        size = math.prod(check.require_integer(n, "an extent", at_least=0) for n in t)
    if type is None:
        if len(numbers) < 2:
            raise check.type_error("a shape has no type", "give minElementsPerTile and grainSize")
        least, grain, *numbers = numbers
        settings["minimum_bytes"] = check.require_integer(least, "minElementsPerTile", at_least=0)
        settings["grain"] = check.require_integer(grain, "grainSize", at_least=1)
    if len(numbers) > 1:
        raise check.type_error(f"calcLinearTileMapping takes no {numbers[1]!r}")
    first = check.require_integer((numbers or [0])[0], "offset", at_least=0)
    tiles = _count_tiles(graph)
    bounds = linear_tile_bounds(size, type.size if type else 1, tiles, **settings).tolist()
    mapping: list[list[Interval]] = [[] for _ in range(tiles)]
    order = _tiles_in_order(tiles, first, is_ascending=is_ascending).tolist()
    for tile, (begin, end) in zip(order, itertools.pairwise(bounds), strict=False):
        mapping[tile] = [Interval(begin, end)]
    return mapping


def _split_order(arguments: Sequence[Any]) -> tuple[list[Any], bool]:
    """Returns the arguments without a flag at their end, and that flag, True by default."""
    if arguments and isinstance(arguments[-1], bool):
        return [*arguments[:-1]], arguments[-1]
    return [*arguments], True


def _count_tiles(graph: Graph | Target) -> int:
    if isinstance(graph, Target):
        return graph.getNumTiles()
    return check.require_instance(graph, Graph, "graph").getTarget().getNumTiles()


def _tiles_in_order(tiles: int, first: int, *, is_ascending: bool) -> np.ndarray:
    """Returns the tiles in the order in which a linear mapping fills them."""
    numbers = np.arange(tiles)
    return (first + numbers if is_ascending else tiles - 1 - first - numbers) % tiles


def _bounds_of(graph: Graph, t: Tensor, **settings: int) -> np.ndarray:
    return linear_tile_bounds(t.numElements(), t.type.size, _count_tiles(graph), **settings)


def _read_settings(t: Tensor, least: int | None, grain: int | None) -> dict[str, int]:
    """Returns the settings of a linear mapping that differ from PopLibs' defaults."""
    check.require_instance(t, Tensor, "t")
    settings: dict[str, int] = {}
    if least is not None:
        least = check.require_integer(least, "minElementsPerTile", at_least=0)
        settings["minimum_bytes"] = least * t.type.size
    if grain is not None:
        settings["grain"] = check.require_integer(grain, "grainSize", at_least=1)
    return settings


@check.guard
def getTileImbalance(mapping: Any, *arguments: Any) -> int:
    """Returns how many more elements than an even share the fullest tile has.

    Args:
      mapping: the intervals of each tile; or a graph, which a tensor follows.
      *arguments: the fewest elements that a share is taken to have, `minElementsPerTile` (0), and
        `grainSize` (1), which it is not below either.
    """
    if isinstance(mapping, Graph):
        tensor = check.require_instance(arguments[0] if arguments else None, Tensor, "t")
        return getTileImbalance(mapping.getTileMapping(tensor), *arguments[1:])
    if len(arguments) > 2:
        raise check.type_error("getTileImbalance takes minElementsPerTile and grainSize")
    limits = [check.require_integer(argument, "a number", at_least=0) for argument in arguments]
    sizes = [sum(as_interval(interval).size() for interval in tile) for tile in mapping]
    even = -(-sum(sizes) // max(1, len(sizes)))
    return max(0, max(sizes, default=0) - max(even, 1, *limits))


_CPP_NAMES = {
    "FLOAT": "float",
    "HALF": "half",
    "INT": "int",
    "UNSIGNED_INT": "unsigned int",
    "SHORT": "short",
    "UNSIGNED_SHORT": "unsigned short",
    "CHAR": "char",
    "SIGNED_CHAR": "signed char",
    "UNSIGNED_CHAR": "unsigned char",
    "BOOL": "bool",
}


@check.guard
def templateVertex(name: str, *arguments: Type | bool | int | str) -> str:
    """Returns the name of a vertex type with arguments, such as `Name<float,8,true>`."""

    def spell(argument: Type | bool | int | str) -> str:
        if isinstance(argument, Type):
            return _CPP_NAMES[argument.name]
        return str(argument).lower() if isinstance(argument, bool) else str(argument)

    return f"{name}<{','.join(map(spell, arguments))}>" if arguments else name


@check.guard
def duplicate(graph: Graph, in_: Tensor, p: ProgramSequence, debugContext: str = "") -> Tensor:
    """Adds a copy of a tensor to a program, and returns the copy, which is on the same tiles."""
    out = graph.clone(in_, debugContext)
    p.add(Copy(in_, out))
    return out


@check.guard
def cloneToIpu(graph: Graph, t: Tensor, dstIPU: int, name: str = "") -> Tensor:
    """Adds a variable like a tensor, on the tiles of another IPU with the same numbers.

    Args:
      graph: the graph with the tiles of all IPUs.
      t: the tensor.
      dstIPU: the IPU.
      name: the variable's name.
    """
    target = check.require_instance(graph, Graph, "graph").getTarget()
    ipu = check.require_integer(dstIPU, "dstIPU", at_least=0)
    if ipu >= target.getNumIPUs():
        raise index_error(
            f"there is no IPU {ipu}",
            where=user_line(),
            fix=f"give one of {target.getNumIPUs()}, from 0 on",
        )
    out = graph.clone(t, name)
    tiles = graph.tile_of[t.elements]
    moved = np.where(tiles == NO_TILE, NO_TILE, ipu * target.tiles + tiles % target.tiles)
    graph.tile_of[out.elements] = moved
    return out


@check.guard
def copyToIpu(
    graph: Graph, t: Tensor, prog: ProgramSequence, dstIPU: int, name: str = ""
) -> Tensor:
    """Adds a copy of a tensor to another IPU to a program, and returns the copy.

    Args:
      graph: the graph with the tiles of all IPUs.
      t: the tensor.
      prog: the sequence.
      dstIPU: the IPU.
      name: the copy's name.
    """
    out = cloneToIpu(graph, t, dstIPU, name)
    prog.add(Copy(t, out))
    return out


@check.guard
def broadcastToMatch(a: Tensor, *others: Any) -> Any:
    """Returns views of tensors that are repeated to one shape, as NumPy broadcasts.

    Args:
      a: a tensor.
      *others: one or two more, or the shape that `a` is to have.

    Returns:
      `a` alone for a shape, else all of them, as a tuple. C++ changes its arguments instead.
    """
    check.require_instance(a, Tensor, "a")
    target_shape = others[0] if len(others) == 1 and not isinstance(others[0], Tensor) else None
    tensors = [a] if target_shape is not None else [a, *others]
    shapes = [tuple(check.require_instance(t, Tensor, "a tensor").shape()) for t in tensors]
    try:
        shape = np.broadcast_shapes(*shapes) if target_shape is None else tuple(target_shape)
        views = [np.broadcast_to(tensor.elements, shape) for tensor in tensors]
    except ValueError as error:
        raise index_error(f"{tensors} do not match: {error}", where=user_line()) from error
    matched = [Tensor(t.graph, v, t.type, t.name) for t, v in zip(tensors, views, strict=True)]
    return matched[0] if target_shape is not None else tuple(matched)
