"""The operands of a map: arrays with a row for each tile, and arrays that all tiles read."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.tiles.tile_arrays import TileArray, check, is_on_tiles, require_rows, require_tiles
from ipujax.tiles.vertices import Vertex


@dc.dataclass(frozen=True)
class OnTiles:
    """Arrays that vertices on some tiles read.

    Attributes:
      tiles: the tiles of the vertices.
      arrays: the arrays.
      row_tiles: for each array the tiles of its rows; None for one that all vertices get whole.
    """

    tiles: tuple[int, ...]
    arrays: tuple[jax.Array, ...]
    row_tiles: tuple[tuple[int, ...] | None, ...]

    def rows(self) -> list[jax.ShapeDtypeStruct]:
        """Returns the shape and dtype of the part of each array that one vertex gets."""
        return [
            jax.ShapeDtypeStruct(
                array.shape if tiles_of_rows is None else array.shape[1:], array.dtype
            )
            for array, tiles_of_rows in zip(self.arrays, self.row_tiles, strict=True)
        ]

    def with_shared(self, arrays: Sequence[jax.Array]) -> OnTiles:
        """Returns these arrays, followed by arrays that all vertices get whole."""
        row_tiles = (*self.row_tiles, *[None] * len(arrays))
        return OnTiles(self.tiles, (*self.arrays, *arrays), row_tiles)


@dc.dataclass(frozen=True)
class ArrayIndex:
    """A leaf of the operands' tree that stands for an array, by its index among the arrays."""

    index: int


@dc.dataclass(frozen=True)
class MapOperands:
    """The operands of one map.

    Attributes:
      vertex: the vertex that is mapped.
      arrays: the arrays among the leaves, and the tiles of the vertices.
      leaves: all leaves, with an `ArrayIndex` for each array.
      tree: the tree of the tuple of operands.
    """

    vertex: Vertex
    arrays: OnTiles
    leaves: tuple[Any, ...]
    tree: Any

    def rebuild(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the vertex's operands, with other values for the arrays."""
        leaves = [
            arrays[leaf.index] if isinstance(leaf, ArrayIndex) else leaf for leaf in self.leaves
        ]
        return jax.tree.unflatten(self.tree, leaves)

    def flatten_rule(
        self, rule: Callable[..., Sequence[Any]], results: Any
    ) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
        """Returns a rule of operands as a rule of arrays; `results` is the results' tree."""

        def run(arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            of_operands = rule(self.rebuild(arrays), jax.tree.unflatten(results, cotangents))
            leaves = self.tree.flatten_up_to(tuple(of_operands))
            pairs = zip(leaves, self.leaves, strict=True)
            return [leaf for leaf, operand_leaf in pairs if isinstance(operand_leaf, ArrayIndex)]

        return run


def plain_operands(vertex: Vertex, arrays: OnTiles) -> MapOperands:
    """Returns the operands of a vertex whose every operand is one array."""
    leaves = tuple(ArrayIndex(n) for n in range(len(arrays.arrays)))
    return MapOperands(vertex, arrays, leaves, jax.tree.structure(leaves))


def read_operands(
    vertex: Vertex, operands: Sequence[Any], tiles: Sequence[int] | None
) -> MapOperands:
    """Returns the operands of a map; raises an error for operands that do not fit its tiles."""
    leaves, tree = jax.tree.flatten(tuple(operands), is_leaf=is_on_tiles)
    all_tiles = [leaf.tiles for leaf in leaves if isinstance(leaf, TileArray)]
    if tiles is None and not all_tiles:
        raise check.type_error(
            f"no operand of '{vertex.name}' is on tiles", "put one on tiles, or give tiles="
        )
    tiles = require_tiles(all_tiles[0] if tiles is None else tiles)
    if not tiles:
        raise check.value_error(f"'{vertex.name}' is mapped over no tiles", "give some tiles")
    arrays: list[jax.Array] = []
    row_tiles: list[tuple[int, ...] | None] = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, (bool, int, float)):
            continue
        if isinstance(leaf, TileArray):
            require_rows(leaf.shape, tiles, f"an operand of '{vertex.name}'")
        leaves[number] = ArrayIndex(len(arrays))
        arrays.append(jnp.asarray(leaf.array if isinstance(leaf, TileArray) else leaf))
        row_tiles.append(leaf.tiles if isinstance(leaf, TileArray) else None)
    on_tiles = OnTiles(tiles, tuple(arrays), tuple(row_tiles))
    return MapOperands(vertex, on_tiles, tuple(leaves), tree)
