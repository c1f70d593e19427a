"""Operators that order and count elements, and that seek in what is in order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.table import operator

Pair = tuple[jax.Array, jax.Array]


def _order(x: jax.Array, axis: int, descending: bool) -> jax.Array:
    """The indices that sort, equal elements in the order that they have; NaN is the greatest."""
    x = jax.lax.stop_gradient(x)
    if not descending:
        return jnp.argsort(x, axis, stable=True)
    # Backwards, and backwards again: a stable order upwards is one downwards from behind.
    behind = jnp.argsort(jnp.flip(x, axis), axis, stable=True)
    return x.shape[axis] - 1 - jnp.flip(behind, axis)


@operator("aten.sort.default")
def sort(x: jax.Array, axis: int = -1, descending: bool = False) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    order = _order(x, axis, descending)
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


@operator("aten.msort.default")
def msort(x: jax.Array) -> jax.Array:
    return sort(x, 0)[0]


@operator("aten.topk.default")
def topk(x: jax.Array, k: int, axis: int = -1, largest: bool = True, in_order: bool = True) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    if largest and axis % x.ndim == x.ndim - 1:
        values, order = jax.lax.top_k(x, k)
        return values, order
    order = jax.lax.slice_in_dim(_order(x, axis, largest), 0, k, axis=axis)
    return jnp.take_along_axis(x, order, axis), order


@operator("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    ordered: jax.Array,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: jax.Array | None = None,
) -> jax.Array:
    """Where values belong; ranges of all axes but the last belong together."""
    side = "right" if right or side == "right" else "left"
    ordered = ordered if sorter is None else jnp.take_along_axis(ordered, sorter, -1)
    values = jnp.asarray(values)
    if ordered.ndim == 1:
        return jnp.searchsorted(ordered, values, side=side)
    rows = ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1])
    found = jax.vmap(lambda row, sought: jnp.searchsorted(row, sought, side=side))(*rows)
    return found.reshape(values.shape)


@operator("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    values: Any, boundaries: jax.Array, *, out_int32: bool = False, right: bool = False
) -> jax.Array:
    return searchsorted(boundaries, values, right=right)
