"""Operators that give the elements of an array another type."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx.helper

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.arrays import known, whole
from ipujax.frontends.onnx.operators.table import operator

_SATURATING = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_SMALL = ("int2", "int4", "uint2", "uint4")
_HIGHEST_EXPONENT, _NAN = 254, 255


def converted(x: Any, dtype: np.dtype[Any], saturate: int = 1, round_mode: str = "up") -> Any:
    """Elements in another dtype, as `Cast` converts them.

    Args:
      x: the array.
      dtype: the other.
      saturate: whether what is too large for 8 bits of floating point becomes the largest number;
        else infinity or NaN.
      round_mode: of a type of exponents alone: "up", "down" or "nearest".
    """
    if dtype.name == "float8_e8m0fnu":
        return _exponents(jnp.asarray(x, jnp.float32), saturate, round_mode)
    if dtype.name in _SATURATING and not jnp.issubdtype(x.dtype, jnp.bool_):
        wide = jnp.asarray(x, jnp.float32) if whole(x) or x.dtype.itemsize < 2 else jnp.asarray(x)
        if saturate:
            largest = jnp.asarray(ml_dtypes.finfo(dtype).max, wide.dtype)
            wide = jnp.clip(wide, -largest, largest)
        return wide.astype(dtype)
    if known(x) and x.dtype.kind in "biuf" and dtype.kind in "biuf":
        return x.astype(dtype)
    if dtype.name in _SMALL and not whole(x):
        return jnp.asarray(x).astype(jnp.int32).astype(dtype)  # wraps, as other integers do
    return jnp.asarray(x).astype(dtype)


def _exponents(x: jax.Array, saturate: int, round_mode: str) -> jax.Array:
    """Numbers of single precision rounded to powers of two."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    exponent = (bits >> 23 & 0xFF).astype(jnp.int32)
    fraction = bits & 0x7FFFFF
    rounds_up = {
        "up": fraction > 0,
        "down": jnp.zeros_like(fraction, bool),
        "nearest": fraction >= jnp.where(exponent > 0, 0x400000, 0x400001),
    }
    if round_mode not in rounds_up:
        raise check.refuse(f"round_mode is {round_mode!r}", f"give one of {', '.join(rounds_up)}")
    rounded = exponent + rounds_up[round_mode]
    rounded = jnp.minimum(rounded, _HIGHEST_EXPONENT if saturate else _NAN)
    result = jnp.where(exponent == _NAN, _NAN, rounded).astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(result, jnp.float8_e8m0fnu)


@operator("Cast", 6)
def cast(x: Any, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, dtype_of(to), saturate, round_mode)


@operator("CastLike", 15)
def cast_like(x: Any, like: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    dtype = jax.dtypes.canonicalize_dtype(like.dtype)
    return converted(x, dtype, saturate, round_mode)


@operator("BitCast", 26)
def bitcast(x: Any, to: int) -> Any:
    wanted = onnx.helper.tensor_dtype_to_np_dtype(to)
    if known(x):
        return x.view(wanted)
    if wanted.itemsize > 4:
        raise check.refuse(
            f"the bits of {wanted} are asked for, and arrays have at most 32 in JAX",
            "compute with types of 32 bits",
        )
    if np.dtype(bool) in (x.dtype, wanted):
        return x.astype(wanted)
    return jax.lax.bitcast_convert_type(x, wanted)
