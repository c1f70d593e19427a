"""Casts of arrays to other element types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx.helper

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.arrays import are_constant, has_integers
from ipujax.doors.onnx.operators.table import operator

_SATURATING = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_SUB_BYTE_INTEGERS = ("int2", "int4", "uint2", "uint4")
_HIGHEST_EXPONENT, _NAN = 254, 255


def cast_elements(
    x: Operand, dtype: np.dtype, saturate: int = 1, round_mode: str = "up"
) -> Operand:
    """Casts elements to another dtype by the rules of `Cast`.

    Args:
      x: the array.
      dtype: the target dtype.
      saturate: whether numbers too large for 8-bit floats become the largest number; else they
        become infinity or NaN.
      round_mode: rounding to a type of exponents only: "up", "down" or "nearest".
    """
    if dtype.name == "float8_e8m0fnu":
        return _round_to_exponents(jnp.asarray(x, jnp.float32), saturate, round_mode)
    if dtype.name in _SATURATING and not jnp.issubdtype(x.dtype, jnp.bool_):
        wide_values = (
            jnp.asarray(x, jnp.float32)
            if has_integers(x) or x.dtype.itemsize < 2
            else jnp.asarray(x)
        )
        if saturate:
            largest = jnp.asarray(ml_dtypes.finfo(dtype).max, wide_values.dtype)
            wide_values = jnp.clip(wide_values, -largest, largest)
        return wide_values.astype(dtype)
    if are_constant(x) and x.dtype.kind in "biuf" and dtype.kind in "biuf":
        return x.astype(dtype)
    if dtype.name in _SUB_BYTE_INTEGERS and not has_integers(x):
        return jnp.asarray(x).astype(jnp.int32).astype(dtype)  # wraps, as other integers do
    return jnp.asarray(x).astype(dtype)


def _round_to_exponents(x: jax.Array, saturate: int, round_mode: str) -> jax.Array:
    """Rounds float32 numbers to powers of two, as float8_e8m0fnu."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    exponent = (bits >> 23 & 0xFF).astype(jnp.int32)
    fraction = bits & 0x7FFFFF
    rounds_up = {
        "up": fraction > 0,
        "down": jnp.zeros_like(fraction, bool),
        "nearest": fraction >= jnp.where(exponent > 0, 0x400000, 0x400001),
    }
    if round_mode not in rounds_up:
        raise check.value_error(
            f"round_mode is {round_mode!r}", f"give one of {', '.join(rounds_up)}"
        )
    rounded = exponent + rounds_up[round_mode]
    rounded = jnp.minimum(rounded, _HIGHEST_EXPONENT if saturate else _NAN)
    result = jnp.where(exponent == _NAN, _NAN, rounded).astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(result, jnp.float8_e8m0fnu)


@operator("Cast", 6)
def cast(x: Operand, to: int, saturate: int = 1, round_mode: str = "up") -> Operand:
    return cast_elements(x, dtype_of_onnx_type(to), saturate, round_mode)


@operator("CastLike", 15)
def cast_like(x: Operand, like: Operand, saturate: int = 1, round_mode: str = "up") -> Operand:
    dtype = jax.dtypes.canonicalize_dtype(like.dtype)
    return cast_elements(x, dtype, saturate, round_mode)


@operator("BitCast", 26)
def bitcast(x: Operand, to: int) -> Operand:
    target_dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
    if are_constant(x):
        return x.view(target_dtype)
    if target_dtype.itemsize > 4:
        raise check.value_error(
            f"BitCast is to {target_dtype}, and elements of arrays have at most 32 bits in JAX",
            "compute with types of 32 bits",
        )
    if np.dtype(bool) in (x.dtype, target_dtype):
        return x.astype(target_dtype)
    return jax.lax.bitcast_convert_type(x, target_dtype)
