"""ONNX quantization and dequantization."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.arrays import normalize_axis
from ipujax.doors.onnx.operators.casts import cast_elements
from ipujax.doors.onnx.operators.products import broadcast_to_lines, subtract_zero_point
from ipujax.doors.onnx.operators.table import operator


@operator("QuantizeLinear", 10)
def quantize_linear(
    x: jax.Array,
    scale: Operand,
    zero_point: Operand = None,
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> jax.Array:
    """Quantizes numbers; the quotient has the scale's precision unless `precision` is set."""
    dtype = _dtype_of_quantized(zero_point, output_dtype)
    precise = dtype_of_onnx_type(precision) if precision else _floating_or_float32(scale.dtype)
    scale = _broadcast_per_axis(scale, x, axis, block_size)
    quotient = x.astype(precise) / scale.astype(precise)
    zero_point = (
        None if zero_point is None else _broadcast_per_axis(zero_point, x, axis, block_size)
    )
    return _round_to_quantized(quotient, zero_point, dtype, saturate)


@operator("DequantizeLinear", 10)
def dequantize_linear(
    x: jax.Array,
    scale: Operand,
    zero_point: Operand = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> jax.Array:
    wide = x.astype(jnp.float32)
    if zero_point is not None:
        wide = wide - _broadcast_per_axis(zero_point, x, axis, block_size).astype(jnp.float32)
    product = wide * _broadcast_per_axis(scale, x, axis, block_size).astype(jnp.float32)
    return product.astype(dtype_of_onnx_type(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Quantizes to 8 bits, with a range that holds all elements and zero."""
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = (high - low) / 255
    divisor = jnp.where(scale == 0, 1, scale)
    zero_point = jnp.clip(jnp.round(-low / divisor), 0, 255).astype(jnp.uint8)
    quantized = _round_to_quantized(x / divisor, zero_point, np.dtype(np.uint8), 1)
    return quantized, scale, zero_point


@operator("QLinearMatMul", 10)
def qlinear_matmul(
    a: jax.Array,
    a_scale: Operand,
    a_zero_point: Operand,
    b: jax.Array,
    b_scale: Operand,
    b_zero_point: Operand,
    y_scale: Operand,
    y_zero_point: Operand,
) -> jax.Array:
    product = jnp.matmul(
        subtract_zero_point(a, a_zero_point), subtract_zero_point(b, b_zero_point, columns=True)
    )
    scales = broadcast_to_lines(a_scale, False).astype(jnp.float32) * broadcast_to_lines(
        b_scale, True
    ).astype(jnp.float32)
    quotient = product * (scales / broadcast_to_lines(y_scale, False).astype(jnp.float32))
    return _round_to_quantized(
        quotient, broadcast_to_lines(y_zero_point, False), y_zero_point.dtype, 1
    )


def _round_to_quantized(
    quotient: jax.Array, zero_point: Operand, dtype: Any, saturate: int
) -> jax.Array:
    """Rounds quotients to quantized numbers: to the nearest, halves to even."""
    if not jnp.issubdtype(dtype, jnp.integer):
        if zero_point is not None:
            quotient = quotient + zero_point.astype(quotient.dtype)
        return cast_elements(quotient, np.dtype(dtype), saturate)
    rounded = jnp.round(quotient).astype(jnp.int32)
    if zero_point is not None:
        rounded = rounded + zero_point.astype(jnp.int32)
    limits = jnp.iinfo(dtype)
    return jnp.clip(rounded, int(limits.min), int(limits.max)).astype(dtype)


def _dtype_of_quantized(zero_point: Operand, output_dtype: int) -> np.dtype:
    if not output_dtype:
        return np.dtype(np.uint8) if zero_point is None else zero_point.dtype
    dtype = dtype_of_onnx_type(output_dtype)
    if zero_point is not None and zero_point.dtype != dtype:
        raise check.value_error(
            f"output_dtype is {dtype}, and the zero point has {zero_point.dtype}",
            "give only one of the two, or make them equal",
        )
    return dtype


def _floating_or_float32(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _broadcast_per_axis(values: Operand, x: jax.Array, axis: int, block_size: int) -> Operand:
    """Broadcasts scales or zero points to an array: one for all, for each index, or for blocks."""
    if values.size == 1 and values.ndim < 2:
        return jnp.reshape(values, ())
    axis = 0 if x.ndim == 1 else normalize_axis(axis, x.ndim)
    if not block_size:
        return jnp.reshape(values, [-1 if a == axis else 1 for a in range(x.ndim)])
    repeated = jnp.repeat(values, block_size, axis)
    return jax.lax.slice_in_dim(repeated, 0, x.shape[axis], axis=axis)
