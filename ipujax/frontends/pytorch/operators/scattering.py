"""Operators that give a tensor with other elements at some places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.pytorch.operators.indexing import (
    along,
    grid_along,
    inside,
    rank,
    row,
    slice_of,
)
from ipujax.frontends.pytorch.operators.table import operator


def put_at(x: jax.Array, where: Any, values: Any) -> jax.Array:
    """With values at places; which of several at one place stays is not defined, as in PyTorch.

    PyTorch's derivative gives all of these the cotangent of the place, and so does that of a
    scatter whose places are said to be different.
    """
    return x.at[where].set(jnp.asarray(values, x.dtype), unique_indices=True)


def add_at(x: jax.Array, where: Any, values: jax.Array) -> jax.Array:
    """With values added at places; of bools, with those that are true."""
    values = values.astype(x.dtype)
    return x.at[where].max(values) if x.dtype == jnp.bool_ else x.at[where].add(values)


@operator("aten.slice_scatter.default")
def slice_scatter(
    x: jax.Array,
    source: jax.Array,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> jax.Array:
    return put_at(x, along(axis % x.ndim, slice(start, end, step)), source)


@operator("aten.select_scatter.default")
def select_scatter(x: jax.Array, source: jax.Array, axis: int, index: int) -> jax.Array:
    return put_at(x, along(axis % x.ndim, index), source)


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
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> jax.Array:
    return slice_of(source, axis, start, end, step)


@operator("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    x: jax.Array,
    indices: Sequence[jax.Array | None],
    values: jax.Array,
    accumulate: bool = False,
) -> jax.Array:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype in (bool, jnp.uint8):
        return _put_masked(x, indices[0].astype(bool), values, accumulate)
    where = tuple(slice(None) if one is None else one for one in indices)
    if accumulate:
        return add_at(x, where, values)
    return put_at(x, where, values)


def _put_masked(x: jax.Array, mask: jax.Array, values: jax.Array, accumulate: bool) -> jax.Array:
    """A mask of the first axes; there are as many values as elements of it, or one for all."""
    rest = x.shape[mask.ndim :]
    values = values.astype(x.dtype)
    if values.ndim > len(rest) and values.shape[0] > 1:
        values = values[rank(mask, values.shape[0])]
    elif values.ndim > len(rest):
        values = values[0]
    wide = mask.reshape(*mask.shape, *[1] * len(rest))
    return jnp.where(wide, jnp.add(x, values) if accumulate else values, x)


@operator("aten._unsafe_masked_index_put_accumulate.default")
def masked_index_put(
    x: jax.Array, mask: jax.Array, indices: Sequence[jax.Array | None], values: jax.Array
) -> jax.Array:
    return index_put(x, inside(x, indices), jnp.where(mask, values, 0), accumulate=True)


@operator("aten.scatter.value")
def scatter_value(x: jax.Array, axis: int, index: jax.Array, value: Any) -> jax.Array:
    return scatter(x, axis, index, jnp.full(index.shape, value, x.dtype))


@operator("aten.scatter.src")
def scatter(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    if not x.ndim:
        return source.reshape(()).astype(x.dtype) if index.size else x
    where, values = _places(x, axis, index, source)
    return put_at(x, where, values)


@operator("aten.scatter_add.default")
def scatter_add(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    where, values = _places(row(x), axis, index, source)
    return add_at(row(x), where, values).reshape(x.shape)


def _places(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """The indices that PyTorch's scatter writes to, and what it writes."""
    index, source = row(index), row(source).astype(x.dtype)
    return grid_along(x, axis, index), source[tuple(slice(0, size) for size in index.shape)]


@operator("aten.scatter.reduce")
def scatter_by(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array, *, reduce: str
) -> jax.Array:
    return scatter_reduce(x, axis, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@operator("aten.scatter.value_reduce")
def scatter_value_by(
    x: jax.Array, axis: int, index: jax.Array, value: Any, *, reduce: str
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
    whole = _spread(row(x), axis, index, row(source))
    return scatter_reduce(x, axis, whole, source, reduce, include_self=include_self)


def _spread(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """A vector of indices of one axis, for each element of the source."""
    return jnp.broadcast_to(_only_along(x, axis, row(index)), source.shape)


def _only_along(x: jax.Array, axis: int, values: jax.Array) -> jax.Array:
    """A vector of one axis, for a tensor."""
    return values.reshape([-1 if other == axis % x.ndim else 1 for other in range(x.ndim)])


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
    """What several elements at one place give together; places that get none stay."""
    shape, x = x.shape, row(x)
    where, values = _places(x, axis, index, source)
    reached = jnp.zeros(x.shape, bool).at[where].set(True)
    name = {"multiply": "prod", "add": "sum"}.get(reduce, reduce)
    start = x if include_self else jnp.where(reached, _neutral(name, x.dtype), x)
    return _REDUCED[name](start, where, values, reached, include_self).reshape(shape)


def _neutral(reduce: str, dtype: Any) -> Any:
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


def _sum(start: jax.Array, where: Any, values: jax.Array, *_: Any) -> jax.Array:
    return add_at(start, where, values)


def _mean(
    start: jax.Array, where: Any, values: jax.Array, reached: jax.Array, include_self: bool
) -> jax.Array:
    counted = jnp.zeros(start.shape, jnp.int32).at[where].add(1) + include_self
    count = jnp.maximum(counted, 1)
    total = start.at[where].add(values)
    if jnp.issubdtype(start.dtype, jnp.integer):
        return total // count.astype(start.dtype)
    return total / count.astype(start.dtype)


def _prod(start: jax.Array, where: Any, values: jax.Array, *_: Any) -> jax.Array:
    """The derivative is that of all others' product, for which a zero is counted apart."""
    if start.dtype == jnp.bool_:
        return start.at[where].min(values)
    if not jnp.issubdtype(start.dtype, jnp.inexact):
        return start.at[where].multiply(values)
    fixed = jax.lax.stop_gradient
    x, v = fixed(start), fixed(values)
    zeros = (x == 0).astype(jnp.int32).at[where].add((v == 0).astype(jnp.int32))
    nonzero = jnp.where(x == 0, 1, x).at[where].multiply(jnp.where(v == 0, 1, v))
    result = jnp.where(zeros > 0, 0, nonzero)

    def others(one: jax.Array, zeros: jax.Array, nonzero: jax.Array) -> jax.Array:
        whole = jnp.where(one == 0, nonzero, nonzero / jnp.where(one == 0, 1, one))
        return jnp.where(zeros - (one == 0) > 0, 0, whole)

    change = (start - x) * others(x, zeros, nonzero)
    return result + change.at[where].add((values - v) * others(v, zeros[where], nonzero[where]))


def _extremes(start: jax.Array, where: Any, values: jax.Array, greatest: bool) -> jax.Array:
    """The derivative goes to all that are the extreme, in equal parts."""
    fixed = jax.lax.stop_gradient
    x, v = fixed(start), fixed(values)
    best = x.at[where].max(v) if greatest else x.at[where].min(v)
    if not jnp.issubdtype(start.dtype, jnp.floating):
        return best
    own, theirs = x == best, v == best[where]
    count = own.astype(x.dtype).at[where].add(theirs.astype(x.dtype))
    change = jnp.where(own, start - x, 0).at[where].add(jnp.where(theirs, values - v, 0))
    return best + jnp.where(jnp.isfinite(best), change / jnp.maximum(count, 1), 0)


def _amax(start: jax.Array, where: Any, values: jax.Array, *_: Any) -> jax.Array:
    return _extremes(start, where, values, greatest=True)


def _amin(start: jax.Array, where: Any, values: jax.Array, *_: Any) -> jax.Array:
    return _extremes(start, where, values, greatest=False)


_REDUCED = {"sum": _sum, "mean": _mean, "prod": _prod, "amax": _amax, "amin": _amin}


@operator("aten.index_add.default")
def index_add(
    x: jax.Array, axis: int, index: jax.Array, source: jax.Array, *, alpha: Any = 1
) -> jax.Array:
    wide, values = row(x), row(source).astype(x.dtype)
    values = values if alpha == 1 else values * jnp.asarray(alpha, x.dtype)
    return add_at(wide, along(axis % wide.ndim, row(index)), values).reshape(x.shape)


@operator("aten.index_copy.default")
def index_copy(x: jax.Array, axis: int, index: jax.Array, source: jax.Array) -> jax.Array:
    wide = row(x)
    return put_at(wide, along(axis % wide.ndim, row(index)), row(source)).reshape(x.shape)


@operator("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(x: jax.Array, axis: int, index: jax.Array, value: Any) -> jax.Array:
    wide = row(x)
    filled = jnp.zeros(wide.shape[axis], bool).at[row(index)].set(True)
    filled = _only_along(wide, axis, filled)
    result = jnp.where(filled, jnp.asarray(value, x.dtype), wide)
    return result.reshape(x.shape)


@operator("aten.put.default")
def put(x: jax.Array, index: jax.Array, source: jax.Array, accumulate: bool = False) -> jax.Array:
    flat, where = x.reshape(-1), index.reshape(-1)
    values = source.reshape(-1).astype(x.dtype)
    result = add_at(flat, where, values) if accumulate else put_at(flat, where, values)
    return result.reshape(x.shape)


@operator("aten.diagonal_scatter.default")
def diagonal_scatter(
    x: jax.Array, source: jax.Array, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> jax.Array:
    turned = jnp.moveaxis(x, (axis1, axis2), (-2, -1))
    steps = np.arange(source.shape[-1])
    rows, columns = steps + max(-offset, 0), steps + max(offset, 0)
    result = put_at(turned, (..., rows, columns), source)
    return jnp.moveaxis(result, (-2, -1), (axis1, axis2))


@operator("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    x: jax.Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> jax.Array:
    return x.reshape(-1)[_addresses(size, stride, storage_offset)]


@operator("aten.as_strided_scatter.default")
def as_strided_scatter(
    x: jax.Array,
    source: jax.Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> jax.Array:
    return put_at(x.reshape(-1), _addresses(size, stride, storage_offset), source).reshape(x.shape)


def _addresses(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Where in memory the elements of a strided tensor are."""
    grids = np.ogrid[tuple(slice(0, length) for length in size)]
    sums = sum(grid * step for grid, step in zip(grids, stride, strict=True))
    return np.broadcast_to(np.asarray(sums + (offset or 0)), tuple(size))
