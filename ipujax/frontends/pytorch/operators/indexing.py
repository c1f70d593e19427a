"""Operators that take elements of a tensor: slices, indices and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.pytorch.operators.table import operator


def row(x: jax.Array) -> jax.Array:
    """A number as a vector of one, as PyTorch takes numbers in the place of vectors."""
    return x if x.ndim else x.reshape(1)


def grid_along(x: jax.Array, axis: int, index: jax.Array) -> tuple[jax.Array, ...]:
    """Indices of all axes of `x` where those of one axis are given element by element."""
    grids = jnp.ogrid[tuple(slice(0, size) for size in index.shape)]
    where = [jnp.asarray(grid) for grid in grids]
    where[axis % x.ndim] = index
    return tuple(where)


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """An index of one axis, and all of those before it."""
    return (*(slice(None),) * axis, index)


@operator("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_of(
    x: jax.Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    first, last, step = slice(start, end, step).indices(x.shape[axis])
    return jax.lax.slice_in_dim(x, first, max(first, last), step, axis)


@operator("aten.select.int", "aten.select_copy.int")
def select(x: jax.Array, axis: int, index: int) -> jax.Array:
    return jax.lax.index_in_dim(x, index, axis, keepdims=False)


@operator("aten.narrow.default", "aten.narrow_copy.default")
def narrow(x: jax.Array, axis: int, start: int, length: int) -> jax.Array:
    return slice_of(x, axis, start, start % max(x.shape[axis], 1) + length)


@operator("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: jax.Array, indices: Sequence[jax.Array | None]) -> jax.Array:
    return x[tuple(slice(None) if one is None else one for one in indices)]


@operator("aten._unsafe_masked_index.default")
def masked_index(
    x: jax.Array, mask: jax.Array, indices: Sequence[jax.Array | None], fill: Any
) -> jax.Array:
    return jnp.where(mask, index(x, inside(x, indices)), jnp.asarray(fill, x.dtype))


def inside(x: jax.Array, indices: Sequence[jax.Array | None]) -> list[jax.Array | None]:
    """Indices that a mask may leave out, as such that there are."""
    sizes = zip(indices, x.shape, strict=False)
    return [None if one is None else jnp.clip(one, 0, size - 1) for one, size in sizes]


@operator("aten.index_select.default")
def index_select(x: jax.Array, axis: int, indices: jax.Array) -> jax.Array:
    return jnp.take(x, indices, axis) if x.ndim else x


@operator("aten.gather.default")
def gather(x: jax.Array, axis: int, indices: jax.Array, *, sparse_grad: bool = False) -> jax.Array:
    if not x.ndim or not indices.size:
        return jnp.broadcast_to(x if not x.ndim else jnp.zeros((), x.dtype), indices.shape)
    axis, indices = axis % x.ndim, row(indices)
    kept = [slice(0, size) for size in indices.shape]
    kept[axis] = slice(None)
    return jnp.take_along_axis(x[tuple(kept)], indices, axis)


@operator("aten.take_along_dim.default")
def take_along(x: jax.Array, indices: jax.Array, axis: int | None = None) -> jax.Array:
    return jnp.take_along_axis(x, indices, axis)


@operator("aten.take.default")
def take(x: jax.Array, indices: jax.Array) -> jax.Array:
    return x.reshape(-1)[indices]


@operator("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(call: Call, condition: jax.Array, x: Any, y: Any) -> jax.Array:
    dtype = call.aval.dtype
    return jnp.where(condition.astype(bool), jnp.asarray(x, dtype), jnp.asarray(y, dtype))


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x: jax.Array, mask: jax.Array, value: Any) -> jax.Array:
    return jnp.where(mask.astype(bool), jnp.asarray(value, x.dtype), x)


@operator("aten.masked_scatter.default")
def masked_scatter(x: jax.Array, mask: jax.Array, source: jax.Array) -> jax.Array:
    """The elements of a mask become those of the source, in order."""
    mask = mask.astype(bool)
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    if not source.size:
        return jnp.broadcast_to(x, shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    return jnp.where(mask, source.reshape(-1)[rank(mask, source.size)], x)


def rank(mask: jax.Array, count: int) -> jax.Array:
    """How many elements of a mask are before each, at most `count - 1`."""
    before = jnp.cumsum(mask.reshape(-1), dtype=jnp.int32) - 1
    return jnp.clip(before, 0, count - 1).reshape(mask.shape)


@operator("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(x: Any, among: Any, *, assume_unique: bool = False, invert: bool = False) -> jax.Array:
    return jnp.isin(x, among, invert=invert)


@operator("aten.nonzero_static.default")
def nonzero_static(x: jax.Array, *, size: int, fill_value: int = -1) -> jax.Array:
    if not x.ndim or not x.size:
        return jnp.full((size, x.ndim), fill_value)
    return jnp.stack(jnp.nonzero(x, size=size, fill_value=fill_value), -1)
