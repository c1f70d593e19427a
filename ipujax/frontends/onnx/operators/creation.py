"""Operators that make arrays of a few numbers, or of their shape alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.arrays import ints, library, limited
from ipujax.frontends.onnx.operators.table import operator


@operator("Constant")
def constant(
    value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    **other: Any,
) -> Any:
    if other:
        raise check.refuse(f"a constant holds {', '.join(other)}", "compute with numbers instead")
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.asarray(value_float if value_floats is None else value_floats, np.float32)
    if value_int is None and value_ints is None:
        raise check.refuse("a constant holds nothing", "export the model again")
    return np.asarray(value_int if value_ints is None else value_ints, np.int64)


@operator("ConstantOfShape", 9, static=("shape",))
def constant_of_shape(shape: Any, value: Any = None) -> Any:
    filler = np.zeros((), np.float32) if value is None else value.reshape(())
    return np.full(limited(ints(shape)), filler)


@operator("Range", 11, static=("start", "limit", "delta"))
def range_of(start: Any, limit: Any, delta: Any, stash_type: int = 1) -> Any:
    dtype = start.dtype
    wide = dtype_of(stash_type) if dtype.itemsize == 2 and dtype.kind != "i" else dtype
    first, last, step = (
        np.asarray(value).reshape(()).astype(wide) for value in (start, limit, delta)
    )
    if step == 0:
        raise check.refuse("the step of a range is 0", "give another")
    (count,) = limited([max(math.ceil((last - first) / step), 0)])
    return (first + np.arange(count).astype(wide) * step).astype(dtype)


@operator("EyeLike", 9)
def eye_like(x: Any, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    return np.eye(rows, columns, k, dtype=x.dtype if dtype is None else dtype_of(dtype))


@operator("Trilu", 14)
def trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    """The triangle above or below the `k`-th diagonal, which may be known only when it runs."""
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    diagonal = 0 if k is None else k.reshape(())
    numpy = library(x, diagonal)
    kept = columns - rows >= diagonal if upper else columns - rows <= diagonal
    return numpy.where(kept, x, numpy.zeros((), x.dtype))


@operator("OneHot", 9, static=("depth",))
def one_hot(indices: jax.Array, depth: Any, values: Any, axis: int = -1) -> jax.Array:
    """Indices may be negative; what is outside of the depth marks nothing."""
    (count,) = limited(ints(depth))
    counted = jnp.where(indices < 0, indices + count, indices)
    classes = jnp.arange(count).astype(counted.dtype)
    rank = indices.ndim + 1
    at = axis % rank
    hot = jnp.expand_dims(counted, at) == jnp.expand_dims(
        classes, [a for a in range(rank) if a != at]
    )
    return jnp.where(hot, values[1], values[0])


@operator("NonZero", 9, static=("x",))
def non_zero(x: Any) -> Any:
    return np.asarray(np.nonzero(x), np.int64)


@operator("Unique", static=("x",))
def unique(x: Any, axis: int | None = None, sorted: int = 1) -> tuple[Any, ...]:
    """The values, where they come first, which of them each element is, and how often they come."""
    found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    values, first, inverse, counts = found
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return values, *(part.astype(np.int64) for part in (first, inverse, counts))
