"""Values on tiles: arrays whose leading axis is over given tiles."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.tree_util import GetAttrKey
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import Checks
from ipujax.poplar import IPUModel, index_error, invalid_tile_mapping, type_error

TileTree: TypeAlias = Any
"""A pytree of `TileArray`s, which JAX has no type for."""

check = Checks(type_error, invalid_tile_mapping)


@check.guard
@jax.tree_util.register_pytree_with_keys_class
class TileArray:
    """An array that has one row on each of some tiles; a pytree of one leaf.

    Args:
      array: [tiles, ...].
      tiles: the tile of each row.

    Attributes:
      array: the plain array.
      tiles: a tuple of integers.

    Raises:
      poplar_error: another number of rows than tiles, or a tile that does not exist.
    """

    __slots__ = ("array", "tiles")

    def __init__(self, array: ArrayLike, tiles: Sequence[int]):
        self.array: jax.Array = array  # type: ignore[assignment]
        self.tiles = require_tiles(tiles, may_repeat=True)
        require_rows(np.shape(array), self.tiles, "array")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array, rows first."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the array."""
        return self.array.dtype

    @property
    def size(self) -> int:
        """The number of elements on all tiles."""
        return self.array.size

    @property
    def ndim(self) -> int:
        """The number of axes, with the axis over tiles."""
        return self.array.ndim

    def __len__(self) -> int:
        return len(self.tiles)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)

    def __repr__(self) -> str:
        return f"TileArray({self.array}, tiles={self.tiles})"

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[Any, jax.Array]], tuple[int, ...]]:
        """Returns the array as a named leaf, and the tiles as static data."""
        return ((GetAttrKey("array"), self.array),), self.tiles

    @classmethod
    def tree_unflatten(cls, tiles: tuple[int, ...], leaves: Sequence[jax.Array]) -> TileArray:
        """Returns the value with another leaf: within `vmap` over the tile axis one tile's row."""
        value = object.__new__(cls)
        value.array, value.tiles = leaves[0], tiles
        return value


def require_tiles(tiles: Sequence[int], *, may_repeat: bool = False) -> tuple[int, ...]:
    """Returns tiles of an IPU, distinct ones by default, as a tuple.

    Raises:
      invalid_tile_mapping: a tile that does not exist, or one that is given twice.
      type_error: no sequence of integers.
    """
    try:
        numbers = tuple(operator.index(tile) for tile in tiles)
    except TypeError as error:
        raise check.wrong_type_error("a sequence of integers", tiles, "tiles") from error
    count = IPUModel().createDevice().getTarget().getNumTiles()
    for tile in numbers:
        if not 0 <= tile < count:
            raise check.value_error(
                f"tile {tile} does not exist", f"the IPU has tiles 0 to {count - 1}"
            )
    if not may_repeat and len({*numbers}) < len(numbers):
        twice = next(tile for tile in numbers if numbers.count(tile) > 1)
        raise check.value_error(f"tile {twice} is given twice", "give each tile once")
    return numbers


def require_rows(shape: tuple[int, ...], tiles: tuple[int, ...], argument: str) -> None:
    """Raises an error unless an array has as many rows as there are tiles."""
    if not shape or shape[0] != len(tiles):
        rows = f"{shape[0]} rows" if shape else "no rows"
        raise Checks(type_error, index_error).value_error(
            f"{argument} has {rows} (its shape is {tuple(shape)}), and there are {len(tiles)} "
            "tiles",
            "give one row for each tile",
        )


def is_on_tiles(value: object) -> bool:
    """Returns whether a value is on tiles; for `jax.tree`'s `is_leaf`."""
    return isinstance(value, TileArray)
