"""Copies of plain arrays to tiles; outside of compiled code they do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import tiles as on_tiles
from ipujax.operators import is_traced
from ipujax.tessellate.exceptions import check, require
from ipujax.tessellate.older_jax import current_backend


def runs_on_ipu(*arrays: Any) -> bool:
    """Returns whether JAX is tracing code that may become a program of an IPU."""
    backend = current_backend()
    if backend:
        return backend == "ipu"
    return any(map(is_traced, arrays))


def tile_put_sharded_prim(x: Any, tiles: Sequence[int]) -> Any:
    """Returns an array whose row k is on `tiles[k]`."""
    require(x.shape[0] == len(tiles), "give one row for each tile")
    return on_tiles.put_sharded(x, tiles).array if runs_on_ipu(x) else x


def tile_put_replicated_prim(x: Any, tiles: Sequence[int]) -> Any:
    """Returns a copy of an array on each tile, `[tiles, *x.shape]`."""
    if runs_on_ipu(x):
        return on_tiles.put_replicated(x, tiles).array
    stack = jnp.stack if isinstance(x, jax.Array) else np.stack
    return stack([x] * len(tiles))


def tile_gather_prim(
    x: Any, previous_tiles: Sequence[int], indices: Sequence[int], tiles: Sequence[int]
) -> Any:
    """Returns rows of an array on tiles; `previous_tiles` is where they are, -1 for elsewhere."""
    if not runs_on_ipu(x):
        return x[np.asarray(indices)]
    is_placed = min(previous_tiles, default=-1) >= 0
    value = on_tiles.TileArray(x, previous_tiles) if is_placed else x
    return on_tiles.gather(value, indices, tiles).array


def tile_data_barrier_prim(inputs: Sequence[Any], inputs_tiles: Sequence[Sequence[int]]) -> Any:
    """Returns arrays as soon as all of them are ready.

    Raises:
      TypeError: elements of different sizes, on an IPU.
    """
    if not runs_on_ipu(*inputs):
        return tuple(inputs)
    sizes = {np.dtype(x.dtype).itemsize for x in inputs}
    if len(sizes) > 1:
        raise check.type_error(
            f"a barrier of elements of {sorted(sizes)} bytes", "give elements of one size"
        )
    placed = [on_tiles.TileArray(x, t) for x, t in zip(inputs, inputs_tiles, strict=True)]
    return tuple(value.array for value in on_tiles.barrier(*placed))


def tile_constant_replicated_prim(data: np.ndarray, tiles: Sequence[int]) -> np.ndarray:
    """Returns a copy of a constant array for each tile."""
    return np.stack([data] * len(tiles))


def tile_constant_sharded_prim(data: np.ndarray, tiles: Sequence[int]) -> np.ndarray:
    """Returns a constant array with a row for each tile."""
    require(data.shape[0] == len(tiles), "give one row for each tile")
    return data
