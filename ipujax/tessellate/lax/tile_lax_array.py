"""The creation and reinterpretation of arrays on tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.tessellate.core.tile_array import TileShardedArray, tile_constant_sharded
from ipujax.tessellate.core.tile_interpreter import tile_map
from ipujax.tessellate.lax.described import register_described
from ipujax.tessellate.older_jax import Primitive

reshape_p = register_described(lax.reshape_p, "Reshape")
bitcast_convert_type_p = register_described(lax.bitcast_convert_type_p, "BitcastConvertType")
iota_p = register_described(lax.iota_p, "popops::Iota")


def fill(shape: Sequence[int], fill_value: Any, dtype: Any) -> jax.Array:
    """Returns an array of one number."""
    return jnp.full(shape, fill_value, dtype)


fill_p = Primitive("fill")
fill_p.def_impl(fill)
register_described(fill_p, "popops::Fill")


def tile_fill(
    shape: Sequence[int], fill_value: Any, dtype: Any, tiles: Sequence[int]
) -> TileShardedArray:
    """Returns an array of one number on each tile."""
    return tile_map(fill_p, shape=shape, fill_value=fill_value, dtype=dtype, tiles=tiles)


def tile_sharded_identity(dtype: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Returns the identity matrix with row k on `tiles[k]`."""
    return tile_constant_sharded(np.identity(len(tiles), dtype), tiles)
