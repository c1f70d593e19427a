"""What a vertex is mapped over: arrays with a row for each tile, and arrays that all tiles read."""

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
      homes: for each the tiles of its rows; None for what all vertices get whole.
    """

    tiles: tuple[int, ...]
    arrays: tuple[jax.Array, ...]
    homes: tuple[tuple[int, ...] | None, ...]

    def rows(self) -> list[jax.ShapeDtypeStruct]:
        """Returns what one vertex gets of each array."""
        return [
            jax.ShapeDtypeStruct(array.shape if home is None else array.shape[1:], array.dtype)
            for array, home in zip(self.arrays, self.homes, strict=True)
        ]

    def with_shared(self, arrays: Sequence[jax.Array]) -> OnTiles:
        """Returns these, and then arrays that all vertices get whole."""
        homes = (*self.homes, *[None] * len(arrays))
        return OnTiles(self.tiles, (*self.arrays, *arrays), homes)


@dc.dataclass(frozen=True)
class ArrayPlace:
    """The place of an array among the leaves of the operands."""

    number: int


@dc.dataclass(frozen=True)
class MapOperands:
    """The operands of one map.

    Attributes:
      vertex: what is mapped.
      arrays: the arrays among the leaves, and the tiles of the vertices.
      leaves: all leaves, with an `ArrayPlace` in the place of each array.
      tree: of the tuple of operands.
    """

    vertex: Vertex
    arrays: OnTiles
    leaves: tuple[Any, ...]
    tree: Any

    def rebuild(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the vertex's operands, with these for the arrays."""
        leaves = [
            arrays[leaf.number] if isinstance(leaf, ArrayPlace) else leaf for leaf in self.leaves
        ]
        return jax.tree.unflatten(self.tree, leaves)

    def flatten_rule(
        self, rule: Callable[..., Sequence[Any]], results: Any
    ) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
        """Returns a rule of operands as one of arrays; `results` is the tree of the results."""

        def run(arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            of_operands = rule(self.rebuild(arrays), jax.tree.unflatten(results, cotangents))
            leaves = self.tree.flatten_up_to(tuple(of_operands))
            pairs = zip(leaves, self.leaves, strict=True)
            return [leaf for leaf, given in pairs if isinstance(given, ArrayPlace)]

        return run


def plain_operands(vertex: Vertex, arrays: OnTiles) -> MapOperands:
    """Returns operands that are arrays, one each."""
    leaves = tuple(ArrayPlace(n) for n in range(len(arrays.arrays)))
    return MapOperands(vertex, arrays, leaves, jax.tree.structure(leaves))


def read_operands(
    vertex: Vertex, operands: Sequence[Any], tiles: Sequence[int] | None
) -> MapOperands:
    """Returns the operands of a map, checked."""
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
    homes: list[tuple[int, ...] | None] = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, (bool, int, float)):
            continue
        if isinstance(leaf, TileArray):
            require_rows(leaf.shape, tiles, f"an operand of '{vertex.name}'")
        leaves[number] = ArrayPlace(len(arrays))
        arrays.append(jnp.asarray(leaf.array if isinstance(leaf, TileArray) else leaf))
        homes.append(leaf.tiles if isinstance(leaf, TileArray) else None)
    on_tiles = OnTiles(tiles, tuple(arrays), tuple(homes))
    return MapOperands(vertex, on_tiles, tuple(leaves), tree)
