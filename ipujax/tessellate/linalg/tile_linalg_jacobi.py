"""Eigenvalues of a symmetric matrix by rotations (Jacobi): N / 2 pairs of columns at a time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.tessellate.core.tile_array import (
    TileShardedArray,
    tile_constant_sharded,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from ipujax.tessellate.core.tile_interpreter import tile_map
from ipujax.tessellate.exceptions import require
from ipujax.tessellate.lax.described import register_described
from ipujax.tessellate.older_jax import Primitive


def jacobi_initial_rotation_set(N: int) -> np.ndarray:
    """Returns the first pairs, uint32 [N // 2, 2]: neighbours."""
    return np.arange(N, dtype=np.uint32).reshape(N // 2, 2)


def jacobi_next_rotation_set(rot: np.ndarray) -> np.ndarray:
    """Returns the next pairs of a round in which each index meets each other one once."""
    first, second = rot[:, 0], rot[:, 1]
    if len(rot) == 1:
        return rot
    new_first = np.concatenate([first[:1], second[:1], first[1:-1]])
    new_second = np.concatenate([second[1:], first[-1:]])
    return np.stack([new_first, new_second], 1)


def _find_rotation(pq: jax.Array, pcol: jax.Array, qcol: jax.Array) -> jax.Array:
    """Returns the cosine and sine that make elements (p, q) of two columns 0."""
    p, q = pq[0], pq[1]
    app, apq, aqq = pcol[p], pcol[q], qcol[q]
    is_zero = apq == 0
    tau = (aqq - app) / (2 * jnp.where(is_zero, 1, apq))
    sign = jnp.where(tau >= 0, 1.0, -1.0)
    t = jnp.where(is_zero, 0, sign / (jnp.abs(tau) + jnp.sqrt(1 + tau * tau)))
    cosine = 1 / jnp.sqrt(1 + t * t)
    return jnp.stack([cosine, t * cosine])


def _rotate_columns(cs: jax.Array, pcol: jax.Array, qcol: jax.Array) -> Any:
    return cs[0] * pcol - cs[1] * qcol, cs[1] * pcol + cs[0] * qcol


def _rotate_rows(pairs: jax.Array, all_cs: jax.Array, pcol: jax.Array, qcol: jax.Array) -> Any:
    """Returns two columns whose rows are rotated, for each pair by its own angle."""

    def rotate(column: jax.Array) -> jax.Array:
        rows = _rotate_columns(all_cs.T, column[pairs[:, 0]], column[pairs[:, 1]])
        return column.at[pairs[:, 0]].set(rows[0]).at[pairs[:, 1]].set(rows[1])

    return rotate(pcol), rotate(qcol)


def _define(name: str, function: Any, *, has_several_results: bool) -> Any:
    p = Primitive(name)
    p.multiple_results = has_several_results
    p.def_impl(function)
    return register_described(p, name)


jacobi_sym_schur2_p = _define("jacobi_sym_schur2", _find_rotation, has_several_results=False)
jacobi_rotate_columns_p = _define(
    "jacobi_rotate_columns", _rotate_columns, has_several_results=True
)
jacobi_rotate_rows_p = _define("jacobi_rotate_rows", _rotate_rows, has_several_results=True)


def _rotate_all_pairs(
    pairs: np.ndarray, a: TileShardedArray, vt: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Returns the matrix's columns, and the eigenvectors, after one rotation of each pair."""
    tiles = range(len(pairs))
    placed = tile_constant_sharded(pairs, tiles)
    halves = [[tile_gather(x, pairs[:, n].tolist(), tiles) for n in range(2)] for x in (a, vt)]
    cs = tile_map(jacobi_sym_schur2_p, placed, *halves[0])
    a_half, vt_half = (tile_map(jacobi_rotate_columns_p, cs, *columns) for columns in halves)
    all_pairs, all_cs = (tile_put_replicated(x, tiles) for x in (pairs, cs.array))
    a_half = tile_map(jacobi_rotate_rows_p, all_pairs, all_cs, *a_half)
    column_order = np.argsort(pairs.T.reshape(-1)).tolist()
    a_columns, vt_columns = map(TileShardedArray.concatenate, (a_half, vt_half))
    return (
        tile_gather(a_columns, column_order, a.tiles),
        tile_gather(vt_columns, column_order, vt.tiles),
    )


def ipu_jacobi_eigh(x: Any, num_iters: int = 1) -> tuple[Any, Any]:
    """Diagonalizes a symmetric matrix.

    Args:
      x: float32 [N, N], N even and at most 1 024.
      num_iters: rounds, in each of which every pair of columns is rotated once.

    Returns:
      The matrix after the rotations, [N, N], and the eigenvectors as rows, [N, N].
    """
    count = x.shape[0]
    require(count % 2 == 0, "the number of rows is odd")
    on = range(count)
    start = tile_put_sharded(x, on), tile_put_sharded(jnp.identity(count, x.dtype), on)

    def run_round(_: Any, carry: Any) -> Any:
        pairs = jacobi_initial_rotation_set(count)
        for _ in range(count - 1):
            carry = _rotate_all_pairs(np.sort(pairs, 1), *carry)
            pairs = jacobi_next_rotation_set(pairs)
        return carry

    a, vt = jax.lax.fori_loop(0, num_iters, run_round, start)
    return a.array, vt.array


def ipu_eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = False,
    sort_eigenvalues: bool = True,
    num_iters: int = 1,
) -> tuple[Any, Any]:
    """Returns the eigenvectors and eigenvalues of a symmetric matrix.

    Args:
      x: float32 [N, N], N even.
      lower: both triangles are read.
      symmetrize_input: must be False.
      sort_eigenvalues: whether the least comes first.
      num_iters: rounds of rotations.

    Returns:
      The eigenvectors as columns, [N, N], and the eigenvalues, [N].
    """
    del lower
    require(not symmetrize_input, "give a symmetric matrix")
    a, vt = ipu_jacobi_eigh(x, num_iters)
    values = jnp.diag(a)
    if sort_eigenvalues:
        order = jnp.argsort(values)
        values, vt = values[order], vt[order]
    return vt.T, values
