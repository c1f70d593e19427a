"""Random numbers on tiles: JAX's and not the chip's, different in each call and each run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from ipujax import tiles as on_tiles
from ipujax.operators import choose_random_key
from ipujax.tessellate.core.tile_array import TileShardedArray
from ipujax.tessellate.core.tile_array_primitives import runs_on_ipu

_CALLS = itertools.count()  # on a host, where no device has a seed


def _draw(
    tiles: Sequence[int], dtype: Any, draw: Callable[[jax.Array, Any], jax.Array], name: str
) -> TileShardedArray:
    """Returns random numbers of a type on each tile, drawn from a key by `draw`.

    Elements are drawn as float32 where they are of another floating-point type.
    """
    drawn_type = jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else dtype
    is_on_ipu = runs_on_ipu()
    key = choose_random_key(None, None, name) if is_on_ipu else jax.random.key(next(_CALLS))
    words = jax.random.key_data(jax.random.split(key, len(tiles)))

    def vertex(word: jax.Array) -> jax.Array:
        return draw(jax.random.wrap_key_data(word), drawn_type).astype(dtype)

    if not is_on_ipu:
        return TileShardedArray(jax.vmap(vertex)(words), tiles)
    vertex.__name__ = name
    placed = on_tiles.map(vertex, on_tiles.put_sharded(words, tiles))
    return TileShardedArray(placed.array, tiles)


def tile_random_uniform(
    tiles: Sequence[int], size: int, dtype: Any, offset: float = 0.0, scale: float = 1.0
) -> TileShardedArray:
    """Draws numbers of a uniform distribution on each tile.

    Args:
      tiles: the tiles.
      size: numbers of each.
      dtype: their type.
      offset: the middle of the range; the least number of integers.
      scale: the length of the range.
    """

    def draw(key: jax.Array, kind: Any) -> jax.Array:
        if jnp.issubdtype(kind, jnp.integer):
            return jax.random.randint(key, (size,), int(offset), int(offset + scale), kind)
        half = scale / 2
        return jax.random.uniform(key, (size,), kind, offset - half, offset + half)

    return _draw(tiles, dtype, draw, "tile_random_uniform")


def tile_random_normal(
    tiles: Sequence[int], size: int, dtype: Any, mean: float = 0.0, stddev: float = 1.0
) -> TileShardedArray:
    """Draws numbers of a normal distribution on each tile.

    Args:
      tiles: the tiles.
      size: numbers of each.
      dtype: their type.
      mean: the mean.
      stddev: the standard deviation.
    """

    def draw(key: jax.Array, kind: Any) -> jax.Array:
        return mean + stddev * jax.random.normal(key, (size,), kind)

    return _draw(tiles, dtype, draw, "tile_random_normal")


def tile_get_hw_seeds(tiles: Sequence[int]) -> NoReturn:
    """Raises an error: random numbers are JAX's, and tiles have no state of their own."""
    raise NotImplementedError("tile_get_hw_seeds is left out: tiles have no seeds of their own")


def tile_set_hw_seeds(seeds: TileShardedArray) -> NoReturn:
    """Raises an error, as `tile_get_hw_seeds` does."""
    raise NotImplementedError("tile_set_hw_seeds is left out: tiles have no seeds of their own")
