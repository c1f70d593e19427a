"""Arrays on tiles, and the functions that put them there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.typing import DTypeLike

from ipujax.tessellate.core.tile_array_primitives import (
    tile_constant_replicated_prim,
    tile_constant_sharded_prim,
    tile_data_barrier_prim,
    tile_gather_prim,
    tile_put_replicated_prim,
    tile_put_sharded_prim,
)
from ipujax.tessellate.exceptions import check, require


def check_tile_array_multi_slice(slices: tuple[Any, ...], shape: Sequence[int]) -> bool:
    """Returns True for indices that leave a contiguous part on each tile.

    Args:
      slices: an index or slice for each of the first axes.
      shape: of the whole array.

    Raises:
      ValueError: others.
    """
    all_axes = (*slices, *[slice(None)] * (len(shape) - len(slices)))
    cuts = [n for n, part in enumerate(all_axes) if part != slice(None) and n < len(shape)]
    cut_axes = [n for n in cuts if shape[n] > 1]
    has_steps = any(isinstance(part, slice) and part.step not in (None, 1) for part in all_axes[1:])
    before_last = all_axes[1 : max(cut_axes, default=0)]
    if len(all_axes) > len(shape) or has_steps or any(not isinstance(p, int) for p in before_last):
        raise check.value_error(
            f"indices {slices} of an array on tiles of shape {tuple(shape)} leave no contiguous "
            "part on each tile",
            "index single elements, then give one slice without a step",
        )
    return True


@check.guard
@jax.tree_util.register_pytree_node_class
class TileShardedArray:
    """An array that has one row on each of some tiles.

    Args:
      array: [tiles, ...].
      tiles: the tile of each row.

    Raises:
      ValueError: another number of rows than tiles.
    """

    def __init__(self, array: Any, tiles: Sequence[int]):
        if array.shape[0] != len(tiles):
            raise check.value_error(f"an array of shape {array.shape} on {len(tiles)} tiles")
        self.array, self.tiles = array, tuple(int(tile) for tile in tiles)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, ...]]:
        """Returns the array, and the tiles."""
        return (self.array,), self.tiles

    @classmethod
    def tree_unflatten(cls, tiles: tuple[int, ...], leaves: Sequence[Any]) -> TileShardedArray:
        """Returns the value with another leaf."""
        value = object.__new__(cls)
        value.array, value.tiles = leaves[0], tiles
        return value

    @property
    def dtype(self) -> np.dtype:
        """The dtype."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
        return self.array.shape

    @property
    def size(self) -> int:
        """The number of elements of the whole array."""
        return self.array.size

    @property
    def aval(self) -> ShapedArray:
        """The shape and dtype of the whole array, as JAX has them."""
        return ShapedArray(self.shape, self.dtype)

    @property
    def num_tiles(self) -> int:
        """The number of tiles."""
        return len(self.tiles)

    @property
    def tile_aval(self) -> ShapedArray:
        """The shape and dtype of one tile's part, as JAX has them."""
        return ShapedArray(self.shape[1:], self.dtype)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of one tile's part."""
        return self.shape[1:]

    @property
    def device_array(self) -> jax.Array:
        """The whole array."""
        return self.array

    def reshape(self, shape: Sequence[int]) -> TileShardedArray:
        """Returns the value with other axes on each tile; the first is the tiles' axis, or -1."""
        if shape[0] not in (-1, self.num_tiles):
            raise check.value_error(f"shape {tuple(shape)} for an array on {self.num_tiles} tiles")
        return TileShardedArray(self.array.reshape((self.num_tiles, *shape[1:])), self.tiles)

    def tile_reshape(self, shape: Sequence[int]) -> TileShardedArray:
        """Returns the value with another shape on each tile."""
        return self.reshape((self.num_tiles, *shape))

    def squeeze(self) -> TileShardedArray:
        """Returns the value without axes of extent 1, except the tiles' axis."""
        return self.tile_reshape([extent for extent in self.tile_shape if extent != 1])

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)

    def __getitem__(self, key: Any) -> TileShardedArray:
        key = key if isinstance(key, tuple) else (key,)
        if not key or not all(isinstance(part, (int, slice)) for part in key):
            raise check.value_error(f"an array on tiles takes integers and slices, and not {key}")
        first = key[0]
        if isinstance(first, int):
            first %= self.num_tiles
            key = (slice(first, first + 1), *key[1:])
        check_tile_array_multi_slice(key, self.shape)
        return TileShardedArray(self.array[key], self.tiles[key[0]])

    @classmethod
    def concatenate(cls, arrays: Sequence[TileShardedArray]) -> TileShardedArray:
        """Returns the concatenation of several values' rows."""
        rows = jnp.concatenate([value.array for value in arrays])
        return cls(rows, tuple(itertools.chain.from_iterable(value.tiles for value in arrays)))


@check.guard
def tile_put_sharded(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Puts row k of an array on `tiles[k]`."""
    return TileShardedArray(tile_put_sharded_prim(array, tiles), tiles)


@check.guard
def tile_put_replicated(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Puts a copy of an array on each tile: `[tiles, *array.shape]`."""
    array = array if hasattr(array, "shape") else jnp.asarray(array)
    return TileShardedArray(tile_put_replicated_prim(array, tiles), tiles)


@check.guard
def tile_data_barrier(
    *args: TileShardedArray,
) -> TileShardedArray | tuple[TileShardedArray, ...]:
    """Returns values as soon as all of them are ready: one, or a tuple of several."""
    require(all(isinstance(value, TileShardedArray) for value in args), "give values on tiles")
    if len(args) == 1:
        return args[0]
    tiles = [value.tiles for value in args]
    arrays = tile_data_barrier_prim([value.array for value in args], tiles)
    return tuple(map(TileShardedArray, arrays, tiles))


tile_barrier = tile_data_barrier


@check.guard
def tile_gather(
    arr: Any, indices: Sequence[int], tiles: Sequence[int], copy: bool = False
) -> TileShardedArray:
    """Puts row `indices[k]` on `tiles[k]`.

    Args:
      arr: an array, or one on tiles, whose rows stay where they are already in place.
      indices: the rows.
      tiles: as many tiles.
      copy: whether rows that are in place are copied, too; as if the array were on no tiles.
    """
    require(len(indices) == len(tiles), "give one index for each tile")
    require(min(indices) >= 0, "indices begin at 0")
    require(max(indices) < len(arr), "indices end before the number of rows")
    is_placed = isinstance(arr, TileShardedArray)
    previous = arr.tiles if is_placed and not copy else (-1,) * len(arr)
    array = arr.array if is_placed else arr
    return TileShardedArray(tile_gather_prim(array, previous, indices, tiles), tiles)


@check.guard
def tile_constant_replicated(data: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Puts a copy of a constant array on each tile."""
    return TileShardedArray(tile_constant_replicated_prim(np.asarray(data), tiles), tiles)


@check.guard
def tile_constant_sharded(data: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Puts row k of a constant array on `tiles[k]`."""
    return TileShardedArray(tile_constant_sharded_prim(np.asarray(data), tiles), tiles)
