"""Hessenberg form by reflections (Householder): zeros below the first lower diagonal."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.tessellate.core.tile_array import TileShardedArray, tile_put_sharded
from ipujax.tessellate.core.tile_interpreter import tile_map
from ipujax.tessellate.linalg.tile_linalg_qr import (
    ipu_qr_shard_inputs,
    qr_correction_vector_p,
    reflect_rows,
)


def ipu_hessenberg_iterations(
    Q: TileShardedArray, R: TileShardedArray, sdiag_full: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Returns Q and R after a reflection of rows and columns for each column but the last two.

    Args:
      Q: [N, N], the identity at first, a row on each tile.
      R: [N, N], the matrix, a row on each tile.
      sdiag_full: [N, N], on each of R's tiles the signs against which columns are reflected.
    """
    q, columns = Q, _transpose(R)
    for column in range(len(Q) - 2):
        row = slice(column, column + 1)
        v, scale = tile_map(
            qr_correction_vector_p, columns[row], sdiag_full[row], col_idx=column + 1
        )
        q, columns = (reflect_rows(value, v.array[0], scale.array[0]) for value in (q, columns))
        rows = reflect_rows(_transpose(columns), v.array[0], scale.array[0])
        columns = _transpose(rows)
    return q, _transpose(columns)


def ipu_hessenberg(x: jax.Array) -> tuple[TileShardedArray, TileShardedArray]:
    """Returns Q and R, with `x = Q @ R @ Q.T` and nothing below R's first lower diagonal.

    Args:
      x: float32 [N, N], of at most 736 rows.
    """
    q, columns, signs = ipu_qr_shard_inputs(x, jnp.where(jnp.diag(x) < 0, -1, 1).astype(x.dtype))
    return ipu_hessenberg_iterations(q, _transpose(columns), signs)


def _transpose(value: TileShardedArray) -> TileShardedArray:
    return tile_put_sharded(value.array.T, value.tiles)
