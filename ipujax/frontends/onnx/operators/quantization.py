"""Operators that go between numbers and their quantized form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.arrays import axis_of
from ipujax.frontends.onnx.operators.casts import converted
from ipujax.frontends.onnx.operators.products import of_lines, shifted
from ipujax.frontends.onnx.operators.table import operator


@operator("QuantizeLinear", 10)
def quantize_linear(
    x: jax.Array,
    scale: Any,
    zero_point: Any = None,
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> jax.Array:
    """The quotient has the precision of the scale, unless another is asked for."""
    dtype = _quantized(zero_point, output_dtype)
    precise = dtype_of(precision) if precision else _floating(scale.dtype)
    scale = _spread(scale, x, axis, block_size)
    quotient = x.astype(precise) / scale.astype(precise)
    zero_point = None if zero_point is None else _spread(zero_point, x, axis, block_size)
    return _rounded(quotient, zero_point, dtype, saturate)


@operator("DequantizeLinear", 10)
def dequantize_linear(
    x: jax.Array,
    scale: Any,
    zero_point: Any = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> jax.Array:
    wide = x.astype(jnp.float32)
    if zero_point is not None:
        wide = wide - _spread(zero_point, x, axis, block_size).astype(jnp.float32)
    product = wide * _spread(scale, x, axis, block_size).astype(jnp.float32)
    return product.astype(dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The range of 8 bits holds all elements, and zero."""
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = (high - low) / 255
    divisor = jnp.where(scale == 0, 1, scale)
    zero_point = jnp.clip(jnp.round(-low / divisor), 0, 255).astype(jnp.uint8)
    quantized = _rounded(x / divisor, zero_point, np.dtype(np.uint8), 1)
    return quantized, scale, zero_point


@operator("QLinearMatMul", 10)
def qlinear_matmul(
    a: jax.Array,
    a_scale: Any,
    a_zero_point: Any,
    b: jax.Array,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
) -> jax.Array:
    product = jnp.matmul(shifted(a, a_zero_point), shifted(b, b_zero_point, columns=True))
    scales = of_lines(a_scale, False).astype(jnp.float32) * of_lines(b_scale, True).astype(
        jnp.float32
    )
    quotient = product * (scales / of_lines(y_scale, False).astype(jnp.float32))
    return _rounded(quotient, of_lines(y_zero_point, False), y_zero_point.dtype, 1)


def _rounded(quotient: jax.Array, zero_point: Any, dtype: Any, saturate: int) -> jax.Array:
    """Quotients as quantized numbers: to the nearest, halves to the even one."""
    if not jnp.issubdtype(dtype, jnp.integer):
        if zero_point is not None:
            quotient = quotient + zero_point.astype(quotient.dtype)
        return converted(quotient, np.dtype(dtype), saturate)
    rounded = jnp.round(quotient).astype(jnp.int32)
    if zero_point is not None:
        rounded = rounded + zero_point.astype(jnp.int32)
    limits = jnp.iinfo(dtype)
    return jnp.clip(rounded, int(limits.min), int(limits.max)).astype(dtype)


def _quantized(zero_point: Any, output_dtype: int) -> np.dtype[Any]:
    if not output_dtype:
        return np.dtype(np.uint8) if zero_point is None else zero_point.dtype
    dtype = dtype_of(output_dtype)
    if zero_point is not None and zero_point.dtype != dtype:
        raise check.refuse(
            f"output_dtype is {dtype}, and the zero point has {zero_point.dtype}",
            "give one of them, or the same",
        )
    return dtype


def _floating(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _spread(values: Any, x: jax.Array, axis: int, block_size: int) -> Any:
    """Scales or zero points for each element: of all, of one axis, or of blocks along it."""
    if values.size == 1 and values.ndim < 2:
        return jnp.reshape(values, ())
    axis = 0 if x.ndim == 1 else axis_of(axis, x.ndim)
    if not block_size:
        return jnp.reshape(values, [-1 if a == axis else 1 for a in range(x.ndim)])
    repeated = jnp.repeat(values, block_size, axis)
    return jax.lax.slice_in_dim(repeated, 0, x.shape[axis], axis=axis)
