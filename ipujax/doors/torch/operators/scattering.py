"""PyTorch scatter operators, which replace or combine elements at indices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.copies import zero_with_derivative_of
from ipujax.doors.torch.operators.indexing import (
    at_least_vector,
    element_index_along,
    index_at_one_axis,
    rank_in_mask,
    slice_tensor,
)
from ipujax.doors.torch.operators.table import operator
from ipujax.ground import PyTree


def set_at(x: jax.Array, index: Operand, values: Operand) -> jax.Array:
    """Sets elements at an index; of several at one element any may stay, as in PyTorch.

    PyTorch gives each of these the element's cotangent, and so does JAX for a scatter whose indices
    are declared unique.
    """
    return x.at[index].set(jnp.asarray(values, x.dtype), unique_indices=True)


def add_at(x: jax.Array, index: Operand, values: jax.Array) -> jax.Array:
    """Adds values to elements at an index; for bools, takes the logical or."""
    values = values.astype(x.dtype)
    return x.at[index].max(values) if x.dtype == jnp.bool_ else x.at[index].add(values)


@operator("aten.slice_scatter.default")
def slice_scatter(
    x: jax.Array,
    source: jax.Array,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> jax.Array:
    return set_at(x, index_at_one_axis(axis % x.ndim, slice(start, end, step)), source)


@operator("aten.select_scatter.default")
def select_scatter(x: jax.Array, source: jax.Array, axis: int, index: int) -> jax.Array:
    return set_at(x, index_at_one_axis(axis % x.ndim, index), source)


@operator("aten.select_backward.default")
def select_backward(grad: jax.Array, shape: Sequence[int], axis: int, index: int) -> jax.Array:
    return select_scatter(jnp.zeros(shape, grad.dtype), grad, axis, index)


@operator("aten.slice_backward.default")
def slice_backward(
    grad: jax.Array, shape: Sequence[int], axis: int, start: int, end: int, step: int
) -> jax.Array:
    return slice_scatter(jnp.zeros(shape, grad.dtype), grad, axis, start, end, step)


@operator("aten.slice_inverse.default")
def slice_inverse(
    x: jax.Array,
    source: jax.Array,
    axis: int = 0,
    start: Operand = None,
    end: Operand = None,
    step: int = 1,
) -> jax.Array:
    return slice_tensor(source, axis, start, end, step)


@operator("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    x: jax.Array,
    indices: Sequence[jax.Array | None],
    values: jax.Array,
    accumulate: bool = False,
) -> jax.Array:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype in (bool, jnp.uint8):
        return _set_masked(x, indices[0].astype(bool), values, accumulate)
    full_index = tuple(slice(None) if axis_index is None else axis_index for axis_index in indices)
    if accumulate:
        return add_at(x, full_index, values)
    return set_at(x, full_index, values)


def _set_masked(x: jax.Array, mask: jax.Array, values: jax.Array, accumulate: bool) -> jax.Array:
    """Sets or adds values where a mask of the first axes is true: one for each, or one for all."""
    row_shape = x.shape[mask.ndim :]
    values = values.astype(x.dtype)
    if values.ndim > len(row_shape) and values.shape[0] > 1:
        values = values[rank_in_mask(mask, values.shape[0])]
    elif values.ndim > len(row_shape):
        values = values[0]
    wide_mask = mask.reshape(*mask.shape, *[1] * len(row_shape))
    return jnp.where(wide_mask, jnp.add(x, values) if accumulate else values, x)


@operator("aten.scatter.value")
def scatter_value(x: jax.Array, axis: int, index: jax.Array, value: ArrayLike) -> jax.Array:
    return scatter(x, axis, index, jnp.full(index.shape, value, x.dtype))


@operator("aten.scatter.src")
def scatter(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    if not x.ndim:
        return source.reshape(()).astype(x.dtype) if index.size else x
    target_index, values = _target_and_values(x, axis, index, source)
    return set_at(x, target_index, values)


@operator("aten.scatter_add.default")
def scatter_add(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    target_index, values = _target_and_values(at_least_vector(x), axis, index, source)
    return add_at(at_least_vector(x), target_index, values).reshape(x.shape)


def _target_and_values(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Returns the index that PyTorch's scatter writes to, and the values it writes."""
    index, source = at_least_vector(index), at_least_vector(source).astype(x.dtype)
    return element_index_along(x, axis, index), source[
        tuple(slice(0, size) for size in index.shape)
    ]


@operator("aten.scatter.reduce")
def scatter_by(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array, *, reduce: str
) -> jax.Array:
    return scatter_reduce(x, axis, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@operator("aten.scatter.value_reduce")
def scatter_value_by(
    x: jax.Array, axis: int, index: jax.Array, value: ArrayLike, *, reduce: str
) -> jax.Array:
    source = jnp.full(index.shape, value, x.dtype)
    return scatter_by(x, axis, index, source, reduce=reduce)


@operator("aten.index_reduce.default")
def index_reduce(
    x: jax.Array,
    axis: int,
    index: jax.Array,
    source: jax.Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> jax.Array:
    element_index = _expand_index_to_elements(
        at_least_vector(x), axis, index, at_least_vector(source)
    )
    return scatter_reduce(x, axis, element_index, source, reduce, include_self=include_self)


def _expand_index_to_elements(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array
) -> jax.Array:
    """Expands a vector of indices along one axis to an index for each element of the source."""
    return jnp.broadcast_to(_reshape_along_axis(x, axis, at_least_vector(index)), source.shape)


def _reshape_along_axis(x: jax.Array, axis: int, values: jax.Array) -> jax.Array:
    """Reshapes a vector along one axis to broadcast with a tensor."""
    return values.reshape([-1 if dimension == axis % x.ndim else 1 for dimension in range(x.ndim)])


@operator("aten.scatter_reduce.two")
def scatter_reduce(
    x: jax.Array,
    axis: int,
    index: jax.Array,
    source: jax.Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> jax.Array:
    """Reduces elements with equal indices; elements without any keep their value."""
    shape, x = x.shape, at_least_vector(x)
    target_index, values = _target_and_values(x, axis, index, source)
    is_reached = jnp.zeros(x.shape, bool).at[target_index].set(True)
    name = {"multiply": "prod", "add": "sum"}.get(reduce, reduce)
    initial = x if include_self else jnp.where(is_reached, _neutral_element(name, x.dtype), x)
    return _SCATTER_REDUCTIONS[name](
        initial, target_index, values, is_reached, include_self
    ).reshape(shape)


def _neutral_element(reduce: str, dtype: DTypeLike) -> Operand:
    if reduce in ("sum", "mean"):
        return jnp.zeros((), dtype)
    if reduce == "prod":
        return jnp.ones((), dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(-jnp.inf if reduce == "amax" else jnp.inf, dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(reduce == "amin")
    info = jnp.iinfo(dtype)
    return jnp.asarray(info.min if reduce == "amax" else info.max, dtype)


def _scatter_sum(initial: jax.Array, index: Operand, values: jax.Array, *_: object) -> jax.Array:
    return add_at(initial, index, values)


def _scatter_mean(
    initial: jax.Array, index: Operand, values: jax.Array, is_reached: jax.Array, include_self: bool
) -> jax.Array:
    contributions = jnp.zeros(initial.shape, jnp.int32).at[index].add(1) + include_self
    count = jnp.maximum(contributions, 1)
    total = initial.at[index].add(values)
    if jnp.issubdtype(initial.dtype, jnp.integer):
        return total // count.astype(initial.dtype)
    return total / count.astype(initial.dtype)


def _scatter_product(initial: jax.Array, index: PyTree, values: jax.Array, *_: object) -> jax.Array:
    """Multiplies elements; its derivative is the product of all others, where zeros are counted."""
    if initial.dtype == jnp.bool_:
        return initial.at[index].min(values)
    if not jnp.issubdtype(initial.dtype, jnp.inexact):
        return initial.at[index].multiply(values)
    fixed = jax.lax.stop_gradient
    x, v = fixed(initial), fixed(values)
    zeros = (x == 0).astype(jnp.int32).at[index].add((v == 0).astype(jnp.int32))
    nonzero = jnp.where(x == 0, 1, x).at[index].multiply(jnp.where(v == 0, 1, v))
    result = jnp.where(zeros > 0, 0, nonzero)

    def product_of_others(factor: jax.Array, zeros: jax.Array, nonzero: jax.Array) -> jax.Array:
        quotient = jnp.where(factor == 0, nonzero, nonzero / jnp.where(factor == 0, 1, factor))
        return jnp.where(zeros - (factor == 0) > 0, 0, quotient)

    change = zero_with_derivative_of(initial) * product_of_others(x, zeros, nonzero)
    return result + change.at[index].add(
        zero_with_derivative_of(values) * product_of_others(v, zeros[index], nonzero[index])
    )


def _scatter_extremum(
    initial: jax.Array, index: PyTree, values: jax.Array, greatest: bool
) -> jax.Array:
    """Returns extrema, whose derivative is split equally among all equal elements."""
    fixed = jax.lax.stop_gradient
    x, v = fixed(initial), fixed(values)
    best = x.at[index].max(v) if greatest else x.at[index].min(v)
    if not jnp.issubdtype(initial.dtype, jnp.floating):
        return best
    is_initial_best, is_value_best = x == best, v == best[index]
    count = is_initial_best.astype(x.dtype).at[index].add(is_value_best.astype(x.dtype))
    change = (
        jnp.where(is_initial_best, zero_with_derivative_of(initial), 0)
        .at[index]
        .add(jnp.where(is_value_best, zero_with_derivative_of(values), 0))
    )
    return best + jnp.where(jnp.isfinite(best), change / jnp.maximum(count, 1), 0)


def _scatter_max(initial: jax.Array, index: PyTree, values: jax.Array, *_: object) -> jax.Array:
    return _scatter_extremum(initial, index, values, greatest=True)


def _scatter_min(initial: jax.Array, index: PyTree, values: jax.Array, *_: object) -> jax.Array:
    return _scatter_extremum(initial, index, values, greatest=False)


_SCATTER_REDUCTIONS = {
    "sum": _scatter_sum,
    "mean": _scatter_mean,
    "prod": _scatter_product,
    "amax": _scatter_max,
    "amin": _scatter_min,
}


@operator("aten.index_add.default")
def index_add(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array, *, alpha: ArrayLike = 1
) -> jax.Array:
    vector, values = at_least_vector(x), at_least_vector(source).astype(x.dtype)
    values = values if alpha == 1 else values * jnp.asarray(alpha, x.dtype)
    return add_at(
        vector, index_at_one_axis(axis % vector.ndim, at_least_vector(index)), values
    ).reshape(x.shape)


@operator("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(x: jax.Array, axis: int, index: jax.Array, value: ArrayLike) -> jax.Array:
    vector = at_least_vector(x)
    is_filled = jnp.zeros(vector.shape[axis], bool).at[at_least_vector(index)].set(True)
    is_filled = _reshape_along_axis(vector, axis, is_filled)
    result = jnp.where(is_filled, jnp.asarray(value, x.dtype), vector)
    return result.reshape(x.shape)


@operator("aten.put.default")
def put(x: jax.Array, index: jax.Array, source: jax.Array, accumulate: bool = False) -> jax.Array:
    flat, flat_index = x.reshape(-1), index.reshape(-1)
    values = source.reshape(-1).astype(x.dtype)
    result = add_at(flat, flat_index, values) if accumulate else set_at(flat, flat_index, values)
    return result.reshape(x.shape)


@operator("aten.diagonal_scatter.default")
def diagonal_scatter(
    x: jax.Array, source: jax.Array, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> jax.Array:
    diagonal_last = jnp.moveaxis(x, (axis1, axis2), (-2, -1))
    steps = np.arange(source.shape[-1])
    rows, columns = steps + max(-offset, 0), steps + max(offset, 0)
    result = set_at(diagonal_last, (..., rows, columns), source)
    return jnp.moveaxis(result, (-2, -1), (axis1, axis2))


@operator("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    x: jax.Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> jax.Array:
    return x.reshape(-1)[_memory_offsets(size, stride, storage_offset)]


@operator("aten.as_strided_scatter.default")
def as_strided_scatter(
    x: jax.Array,
    source: jax.Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> jax.Array:
    return set_at(x.reshape(-1), _memory_offsets(size, stride, storage_offset), source).reshape(
        x.shape
    )


def _memory_offsets(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Returns the memory offsets of the elements of a strided tensor."""
    grids = np.ogrid[tuple(slice(0, length) for length in size)]
    sums = sum(grid * step for grid, step in zip(grids, stride, strict=True))
    return np.broadcast_to(np.asarray(sums + (offset or 0)), tuple(size))
