"""Mappings of tensors to tiles, as PopLibs makes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ipujax.operators import linear_tile_bounds
from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.tensors import Interval, Tensor


def mapTensorLinearly(graph: Graph, t: Tensor) -> None:
    """Spreads a tensor's elements over tiles, in their order, from tile 0 on.

    Each tile that has any gets at least 128 bytes, in grains of 8 bytes, as evenly as possible.
    """
    graph.setTileMapping(t, calcLinearTileMapping(graph, t))


def calcLinearTileMapping(graph: Graph, t: Tensor) -> list[list[Interval]]:
    """Returns, for each tile, the intervals of `mapTensorLinearly`."""
    check.require_instance(t, Tensor, "t")
    tiles = check.require_instance(graph, Graph, "graph").getTarget().getNumTiles()
    bounds = linear_tile_bounds(t.numElements(), t.type.size, tiles).tolist()
    used = [[Interval(a, b)] for a, b in itertools.pairwise(bounds)]
    return used + [[] for _ in range(tiles - len(used))]


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
