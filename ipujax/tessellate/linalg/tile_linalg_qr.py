"""QR by reflections (Householder), a row of Q on each of N tiles and a column of R on N more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.tessellate.core.tile_array import (
    TileShardedArray,
    tile_put_replicated,
    tile_put_sharded,
)
from ipujax.tessellate.core.tile_interpreter import declare_ipu_tile_primitive, tile_map
from ipujax.tessellate.core.tile_interpreter_vertex_utils import (
    make_ipu_vector1d_worker_offsets as make_ipu_vector1d_worker_offsets,
)
from ipujax.tessellate.exceptions import require
from ipujax.tessellate.lax.described import register_described
from ipujax.tessellate.older_jax import Primitive

_PARTIALS = 12  # six workers with a vector of two each


@declare_ipu_tile_primitive("DotProduct1d")
def dot_product1d_p(x: Any, y: Any) -> Any:
    """Multiplies two vectors of float32: 12 partial sums, of one of the workers' elements each."""
    require(x.shape == y.shape, "the vectors differ")
    return {"partials": jax.ShapeDtypeStruct((_PARTIALS,), np.float32)}, None, None, 0


def _dot(x: jax.Array, y: jax.Array) -> jax.Array:
    products = x * y
    padded = jnp.pad(products, (0, -products.size % _PARTIALS))
    return padded.reshape(-1, _PARTIALS).sum(0)


def _find_reflection(Rcol: jax.Array, sdiag: jax.Array, *, col_idx: int) -> Any:
    """Returns the vector that reflects a column to the diagonal, and 2 / its squared length."""
    v = jnp.where(jnp.arange(Rcol.size) >= col_idx, Rcol, 0)
    v = v.at[col_idx].add(-jnp.sqrt((v * v).sum()) * sdiag[col_idx])
    length = (v * v).sum()
    return v, jnp.where(length > 0, 2 / length, 0)[None]


def _update_row(
    x: jax.Array, v: jax.Array, scale1: jax.Array, scale2: jax.Array, *, start_idx: int
) -> jax.Array:
    return x.at[start_idx:].add(-scale1.reshape(()) * scale2.reshape(()) * v)


dot_product1d_p.def_impl(_dot)
qr_correction_vector_p = Primitive("qr_correction_vector")
qr_correction_vector_p.multiple_results = True
qr_correction_vector_p.def_impl(_find_reflection)
register_described(qr_correction_vector_p, "QRCorrectionVector")
qr_householder_row_update_p = Primitive("qr_householder_row_update")
qr_householder_row_update_p.def_impl(_update_row)
register_described(qr_householder_row_update_p, "QRHouseholderRowUpdate")


def ipu_qr_shard_inputs(
    x: Any, xsdiag: Any
) -> tuple[TileShardedArray, TileShardedArray, TileShardedArray]:
    """Returns Q = 1, R transposed = x transposed, and the diagonal's signs, on their tiles.

    Args:
      x: [N, N], of at most 736 rows.
      xsdiag: [N], the signs of x's diagonal, against which columns are reflected.
    """
    count = x.shape[0]
    on_r = range(count, 2 * count)
    q = tile_put_sharded(jnp.identity(count, x.dtype), range(count))
    return q, tile_put_sharded(x.T, on_r), tile_put_replicated(xsdiag, on_r)


def ipu_qr_iterations(
    Q: TileShardedArray, RT: TileShardedArray, sdiag_full: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Returns Q and R transposed after a reflection for each column but the last."""
    q, r = Q, RT
    for column in range(len(Q) - 1):
        row = slice(column, column + 1)
        v, scale = tile_map(qr_correction_vector_p, r[row], sdiag_full[row], col_idx=column)
        q, r = (reflect_rows(value, v.array[0], scale.array[0]) for value in (q, r))
    return q, r


def reflect_rows(rows: TileShardedArray, v: Any, scale: Any) -> TileShardedArray:
    """Returns rows reflected at the hyperplane normal to v."""
    on_tiles, scales = (tile_put_replicated(value, rows.tiles) for value in (v, scale))
    partials = tile_map(dot_product1d_p, on_tiles, rows)
    along = tile_map(jax.lax.reduce_sum_p, partials, axes=(0,)).tile_reshape((1,))
    return tile_map(qr_householder_row_update_p, rows, on_tiles, along, scales, start_idx=0)


def ipu_qr(x: Any, xsdiag: Any) -> tuple[TileShardedArray, TileShardedArray]:
    """Returns Q and R transposed, with `x = Q @ R`; see `ipu_qr_shard_inputs`."""
    return ipu_qr_iterations(*ipu_qr_shard_inputs(x, xsdiag))
