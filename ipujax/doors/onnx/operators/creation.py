"""Operators that create arrays from a few numbers or from a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.arrays import check_array_size, numpy_or_jax, to_int_tuple
from ipujax.doors.onnx.operators.table import operator


@operator("Constant")
def constant(
    value: Operand = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    **unsupported: object,
) -> Operand:
    if unsupported:
        raise check.value_error(
            f"a constant holds {', '.join(unsupported)}", "compute with numbers instead"
        )
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.asarray(value_float if value_floats is None else value_floats, np.float32)
    if value_int is None and value_ints is None:
        raise check.value_error("a constant holds nothing", "export the model again")
    return np.asarray(value_int if value_ints is None else value_ints, np.int64)


@operator("ConstantOfShape", 9, static=("shape",))
def constant_of_shape(shape: Operand, value: Operand = None) -> Operand:
    filler = np.zeros((), np.float32) if value is None else value.reshape(())
    return np.full(check_array_size(to_int_tuple(shape)), filler)


@operator("Range", 11, static=("start", "limit", "delta"))
def range_between(start: Operand, limit: Operand, delta: Operand, stash_type: int = 1) -> Operand:
    dtype = start.dtype
    wide = dtype_of_onnx_type(stash_type) if dtype.itemsize == 2 and dtype.kind != "i" else dtype
    first, last, step = (
        np.asarray(value).reshape(()).astype(wide) for value in (start, limit, delta)
    )
    if step == 0:
        raise check.value_error("the step of a range is 0", "give another")
    (count,) = check_array_size([max(math.ceil((last - first) / step), 0)])
    return (first + np.arange(count).astype(wide) * step).astype(dtype)


@operator("EyeLike", 9)
def eye_like(x: Operand, dtype: int | None = None, k: int = 0) -> Operand:
    rows, columns = x.shape
    return np.eye(rows, columns, k, dtype=x.dtype if dtype is None else dtype_of_onnx_type(dtype))


@operator("Trilu", 14)
def trilu(x: Operand, k: Operand = None, upper: int = 1) -> Operand:
    """Returns the triangle above or below the `k`-th diagonal, which may be computed."""
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    diagonal = 0 if k is None else k.reshape(())
    numpy = numpy_or_jax(x, diagonal)
    is_kept = columns - rows >= diagonal if upper else columns - rows <= diagonal
    return numpy.where(is_kept, x, numpy.zeros((), x.dtype))


@operator("OneHot", 9, static=("depth",))
def one_hot(indices: jax.Array, depth: Operand, values: Operand, axis: int = -1) -> jax.Array:
    """Returns one-hot vectors; indices may be negative, and mark nothing outside of the depth."""
    (count,) = check_array_size(to_int_tuple(depth))
    positive_indices = jnp.where(indices < 0, indices + count, indices)
    classes = jnp.arange(count).astype(positive_indices.dtype)
    rank = indices.ndim + 1
    hot_axis = axis % rank
    is_hot = jnp.expand_dims(positive_indices, hot_axis) == jnp.expand_dims(
        classes, [a for a in range(rank) if a != hot_axis]
    )
    return jnp.where(is_hot, values[1], values[0])


@operator("NonZero", 9, static=("x",))
def non_zero(x: Operand) -> Operand:
    return np.asarray(np.nonzero(x), np.int64)


@operator("Unique", static=("x",))
def unique(x: Operand, axis: int | None = None, sorted: int = 1) -> tuple[Operand, ...]:
    """Returns unique values, their first positions, inverse indices and counts."""
    unique_results = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    values, first, inverse, counts = unique_results
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return values, *(part.astype(np.int64) for part in (first, inverse, counts))
