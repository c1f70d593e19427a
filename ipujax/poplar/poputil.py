"""Mappings of tensors to tiles, as PopLibs makes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.operators import linear_tile_bounds
from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.library_operations import map_tensor_linearly
from ipujax.poplar.program import Copy
from ipujax.poplar.program import Sequence as ProgramSequence
from ipujax.poplar.regions import splitRegions as splitRegions
from ipujax.poplar.regions import splitRegionsBetweenWorkers as splitRegionsBetweenWorkers
from ipujax.poplar.tensors import Interval, Tensor
from ipujax.poplar.user_places import user_place


@check.guard
def mapTensorLinearly(
    graph: Graph, t: Tensor, minElementsPerTile: int | None = None, grainSize: int | None = None
) -> None:
    """Spreads a tensor's elements over tiles, in their order, from tile 0 on.

    Args:
      graph: the graph.
      t: the tensor.
      minElementsPerTile: of a tile that has any; as many as 128 bytes have by default.
      grainSize: elements that stay together; as many as 8 bytes have by default.
    """
    map_tensor_linearly(graph, t, **_read_settings(t, minElementsPerTile, grainSize))


@check.guard
def mapTensorLinearlyWithOffset(graph: Graph, t: Tensor, *arguments: int | None) -> int:
    """Spreads a tensor like `mapTensorLinearly`, from another tile on, and round the last one.

    Args:
      graph: the graph.
      t: the tensor.
      *arguments: the first tile; or `minElementsPerTile, grainSize` and the first tile.

    Returns:
      The tile after the last that got any.
    """
    if len(arguments) not in (1, 3):
        raise check.type_error(
            f"mapTensorLinearlyWithOffset takes no {len(arguments)} numbers",
            "give the first tile, or minElementsPerTile, grainSize and the first tile",
        )
    *settings, first = (None, None, *arguments)[-3:]
    first = check.require_integer(first, "offset", at_least=0)
    return map_tensor_linearly(graph, t, first, **_read_settings(t, *settings))


@check.guard
def calcLinearTileMapping(
    graph: Graph, t: Tensor, minElementsPerTile: int | None = None, grainSize: int | None = None
) -> list[list[Interval]]:
    """Returns, for each tile, the intervals of `mapTensorLinearly`."""
    tiles = check.require_instance(graph, Graph, "graph").getTarget().getNumTiles()
    settings = _read_settings(t, minElementsPerTile, grainSize)
    bounds = linear_tile_bounds(t.numElements(), t.type.size, tiles, **settings).tolist()
    used = [[Interval(a, b)] for a, b in itertools.pairwise(bounds)]
    return used + [[] for _ in range(tiles - len(used))]


def _read_settings(t: Tensor, least: int | None, grain: int | None) -> dict[str, int]:
    """Returns the settings of a linear mapping that are not PopLibs' own."""
    check.require_instance(t, Tensor, "t")
    settings: dict[str, int] = {}
    if least is not None:
        least = check.require_integer(least, "minElementsPerTile", at_least=0)
        settings["minimum_bytes"] = least * t.type.size
    if grain is not None:
        settings["grain"] = check.require_integer(grain, "grainSize", at_least=1)
    return settings


@check.guard
def getTileImbalance(
    mapping: Sequence[Sequence[Interval]], minElementsPerTile: int = 0, grainSize: int = 1
) -> int:
    """Returns how many elements the fullest tile has beyond an even spread of grains."""
    sizes = np.array([sum(interval.size() for interval in tile) for tile in mapping])
    grains = -(-int(sizes.sum()) // grainSize)
    even = -(-grains // len(sizes)) * grainSize
    return max(0, int(sizes.max(initial=0)) - max(minElementsPerTile, even))


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
    words = [
        _CPP_NAMES[each.name]
        if isinstance(each, Type)
        else str(each).lower()
        if isinstance(each, bool)
        else str(each)
        for each in arguments
    ]
    return f"{name}<{','.join(words)}>" if words else name


@check.guard
def duplicate(graph: Graph, in_: Tensor, p: ProgramSequence, debugContext: str = "") -> Tensor:
    """Adds a copy of a tensor to a program, and returns the copy, which is on the same tiles."""
    out = graph.clone(in_, debugContext)
    p.add(Copy(in_, out))
    return out


@check.guard
def cloneToIpu(graph: Graph, t: Tensor, dstIPU: int, name: str = "") -> Tensor:
    """Adds a variable like a tensor, on tiles of an IPU with the numbers that its own have there.

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
            where=user_place(),
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
    wanted = others[0] if len(others) == 1 and not isinstance(others[0], Tensor) else None
    tensors = [a] if wanted is not None else [a, *others]
    shapes = [tuple(check.require_instance(t, Tensor, "a tensor").shape()) for t in tensors]
    try:
        shape = np.broadcast_shapes(*shapes) if wanted is None else tuple(wanted)
        views = [np.broadcast_to(tensor.elements, shape) for tensor in tensors]
    except ValueError as error:
        raise index_error(f"{tensors} do not match: {error}", where=user_place()) from error
    matched = [Tensor(t.graph, v, t.type, t.name) for t, v in zip(tensors, views, strict=True)]
    return matched[0] if wanted is not None else tuple(matched)
