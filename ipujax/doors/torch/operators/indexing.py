"""PyTorch slicing, indexing and masking operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.table import operator


def at_least_vector(x: jax.Array) -> jax.Array:
    """Returns a number as a vector of one element: PyTorch accepts numbers as vectors."""
    return x if x.ndim else x.reshape(1)


def element_index_along(x: jax.Array, axis: int, index: jax.Array) -> tuple[jax.Array, ...]:
    """Returns indices of all axes of `x`, of which one axis is given element by element."""
    grids = jnp.ogrid[tuple(slice(0, size) for size in index.shape)]
    index_per_axis = [jnp.asarray(grid) for grid in grids]
    index_per_axis[axis % x.ndim] = index
    return tuple(index_per_axis)


def index_at_one_axis(axis: int, index: Operand) -> tuple[Operand, ...]:
    """Returns an indexing tuple with an index at one axis and full slices before it."""
    return (*(slice(None),) * axis, index)


@operator("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_tensor(
    x: jax.Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    first, last, step = slice(start, end, step).indices(x.shape[axis])
    return jax.lax.slice_in_dim(x, first, max(first, last), step, axis)


@operator("aten.select.int", "aten.select_copy.int")
def select(x: jax.Array, axis: int, index: int) -> jax.Array:
    return jax.lax.index_in_dim(x, index, axis, keepdims=False)


@operator("aten.narrow.default", "aten.narrow_copy.default")
def narrow(x: jax.Array, axis: int, start: int, length: int) -> jax.Array:
    return slice_tensor(x, axis, start, start % max(x.shape[axis], 1) + length)


@operator("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: jax.Array, indices: Sequence[jax.Array | None]) -> jax.Array:
    return x[tuple(slice(None) if axis_index is None else axis_index for axis_index in indices)]


@operator("aten.index_select.default")
def index_select(x: jax.Array, axis: int, indices: jax.Array) -> jax.Array:
    return jnp.take(x, indices, axis) if x.ndim else x


@operator("aten.gather.default")
def gather(x: jax.Array, axis: int, indices: jax.Array, *, sparse_grad: bool = False) -> jax.Array:
    if not x.ndim or not indices.size:
        return jnp.broadcast_to(x if not x.ndim else jnp.zeros((), x.dtype), indices.shape)
    axis, indices = axis % x.ndim, at_least_vector(indices)
    slices = [slice(0, size) for size in indices.shape]
    slices[axis] = slice(None)
    return jnp.take_along_axis(x[tuple(slices)], indices, axis)


@operator("aten.take_along_dim.default")
def take_along(x: jax.Array, indices: jax.Array, axis: int | None = None) -> jax.Array:
    return jnp.take_along_axis(x, indices, axis)


@operator("aten.take.default")
def take(x: jax.Array, indices: jax.Array) -> jax.Array:
    return x.reshape(-1)[indices]


@operator(
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    "aten.where.Scalar",
    takes_call=True,
)
def where(call: Call, condition: jax.Array, x: Operand, y: Operand) -> jax.Array:
    dtype = call.aval.dtype
    return jnp.where(condition.astype(bool), jnp.asarray(x, dtype), jnp.asarray(y, dtype))


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x: jax.Array, mask: jax.Array, value: ArrayLike) -> jax.Array:
    return jnp.where(mask.astype(bool), jnp.asarray(value, x.dtype), x)


@operator("aten.masked_scatter.default")
def masked_scatter(x: jax.Array, mask: jax.Array, source: jax.Array) -> jax.Array:
    """Replaces masked elements by the source's elements, in order."""
    mask = mask.astype(bool)
    full_shape = jnp.broadcast_shapes(x.shape, mask.shape)
    if not source.size:
        return jnp.broadcast_to(x, full_shape)
    x, mask = jnp.broadcast_to(x, full_shape), jnp.broadcast_to(mask, full_shape)
    return jnp.where(mask, source.reshape(-1)[rank_in_mask(mask, source.size)], x)


def rank_in_mask(mask: jax.Array, count: int) -> jax.Array:
    """Returns for each element the number of mask elements before it, at most `count - 1`."""
    preceding = jnp.cumsum(mask.reshape(-1), dtype=jnp.int32) - 1
    return jnp.clip(preceding, 0, count - 1).reshape(mask.shape)


@operator("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(x: Operand, among: Any, *, assume_unique: bool = False, invert: bool = False) -> jax.Array:
    return jnp.isin(x, among, invert=invert)


@operator("aten.nonzero_static.default")
def nonzero_static(x: jax.Array, *, size: int, fill_value: int = -1) -> jax.Array:
    if not x.ndim or not x.size:
        return jnp.full((size, x.ndim), fill_value)
    return jnp.stack(jnp.nonzero(x, size=size, fill_value=fill_value), -1)
