"""PyTorch sorting, top-k and searches in sorted tensors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.doors.torch.operators.table import operator

Pair = tuple[jax.Array, jax.Array]


def _stable_sort_indices(x: jax.Array, axis: int, descending: bool) -> jax.Array:
    """Returns indices of a stable sort, in which NaN is the greatest."""
    x = jax.lax.stop_gradient(x)
    if not descending:
        return jnp.argsort(x, axis, stable=True)
    # A stable ascending sort of the reversed array is a stable descending sort, read backwards.
    reversed_order = jnp.argsort(jnp.flip(x, axis), axis, stable=True)
    return x.shape[axis] - 1 - jnp.flip(reversed_order, axis)


@operator("aten.sort.default")
def sort(x: jax.Array, axis: int = -1, descending: bool = False) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    order = _stable_sort_indices(x, axis, descending)
    return jnp.take_along_axis(x, order, axis), order


@operator("aten.sort.stable")
def sort_stable(
    x: jax.Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Pair:
    return sort(x, dim, descending)


@operator("aten.argsort.default")
def argsort(x: jax.Array, axis: int = -1, descending: bool = False) -> jax.Array:
    return sort(x, axis, descending)[1]


@operator("aten.argsort.stable")
def argsort_stable(
    x: jax.Array, *, stable: bool = True, dim: int = -1, descending: bool = False
) -> jax.Array:
    return sort(x, dim, descending)[1]


@operator("aten.topk.default")
def topk(x: jax.Array, k: int, axis: int = -1, largest: bool = True, in_order: bool = True) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    if largest and axis % x.ndim == x.ndim - 1:
        values, order = jax.lax.top_k(x, k)
        return values, order
    order = jax.lax.slice_in_dim(_stable_sort_indices(x, axis, largest), 0, k, axis=axis)
    return jnp.take_along_axis(x, order, axis), order


@operator("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    ordered: jax.Array,
    values: ArrayLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: jax.Array | None = None,
) -> jax.Array:
    """Returns insertion points of values; leading axes of both arrays correspond."""
    side = "right" if right or side == "right" else "left"
    ordered = ordered if sorter is None else jnp.take_along_axis(ordered, sorter, -1)
    values = jnp.asarray(values)
    if ordered.ndim == 1:
        return jnp.searchsorted(ordered, values, side=side)
    rows = ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1])
    insertion_points = jax.vmap(lambda row, sought: jnp.searchsorted(row, sought, side=side))(*rows)
    return insertion_points.reshape(values.shape)


@operator("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    values: ArrayLike, boundaries: jax.Array, *, out_int32: bool = False, right: bool = False
) -> jax.Array:
    return searchsorted(boundaries, values, right=right)
