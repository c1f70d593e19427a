"""Operators that compute each element by itself: arithmetic, comparisons, logic, bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import known, library, whole
from ipujax.frontends.onnx.operators.table import operator

Function = Callable[..., Any]

_UNARY: dict[str, Function] = {
    "Abs": jnp.abs,
    "Acos": jnp.arccos,
    "Acosh": jnp.arccosh,
    "Asin": jnp.arcsin,
    "Asinh": jnp.arcsinh,
    "Atan": jnp.arctan,
    "Atanh": jnp.arctanh,
    "BitwiseNot": jnp.bitwise_not,
    "Ceil": jnp.ceil,
    "Cos": jnp.cos,
    "Cosh": jnp.cosh,
    "Exp": jnp.exp,
    "Floor": jnp.floor,
    "Identity": lambda x: x,
    "IsNaN": jnp.isnan,
    "Log": jnp.log,
    "Neg": jnp.negative,
    "Not": jnp.logical_not,
    "Reciprocal": jnp.reciprocal,
    "Round": jnp.round,
    "Sign": jnp.sign,
    "Sin": jnp.sin,
    "Sinh": jnp.sinh,
    "Sqrt": jnp.sqrt,
    "Tan": jnp.tan,
    "Tanh": jnp.tanh,
}

_BINARY: dict[str, str] = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
"""The names of the functions, of NumPy and of `jax.numpy`."""

_OF_SEVERAL: dict[str, Function] = {"Max": jnp.maximum, "Min": jnp.minimum, "Sum": jnp.add}


def _binary(name: str) -> Function:
    def function(x: Any, y: Any) -> Any:
        return getattr(library(x, y), name)(x, y)

    return function


def _of_several(function: Function) -> Function:
    def folded(*arrays: Any) -> Any:
        return functools.reduce(function, arrays)

    return folded


for _name, _function in _UNARY.items():
    operator(_name)(_function)
for _name, _text in _BINARY.items():
    operator(_name)(_binary(_text))
for _name, _function in _OF_SEVERAL.items():
    operator(_name)(_of_several(_function))


@operator("Mean")
def mean(*arrays: jax.Array) -> jax.Array:
    return functools.reduce(jnp.add, arrays) / len(arrays)


@operator("Erf")
def erf(x: jax.Array) -> jax.Array:
    return jax.scipy.special.erf(jnp.asarray(x)).astype(x.dtype)


@operator("Div")
def div(x: jax.Array, y: jax.Array) -> jax.Array:
    """Integers are rounded towards zero, as in C."""
    return jax.lax.div(*jnp.broadcast_arrays(x, y))


@operator("Mod", 10)
def mod(x: jax.Array, y: jax.Array, fmod: int = 0) -> jax.Array:
    """The remainder has the sign of `x` if `fmod` is set, else that of `y`."""
    if fmod:
        return jnp.fmod(x, y)
    remainder = jnp.mod(x, y)
    return remainder if whole(x) else jnp.where(remainder == 0, jnp.copysign(0, y), remainder)


@operator("Pow")
def power(x: jax.Array, y: Any) -> jax.Array:
    """The result has the dtype of `x`, whatever the exponent's is."""
    if known(y) and np.ndim(y) == 0 and float(y).is_integer():
        return jnp.power(x, int(y)).astype(x.dtype) if y >= 0 or not whole(x) else _inverse(x, y)
    return jnp.power(x, y).astype(x.dtype)


def _inverse(x: jax.Array, y: Any) -> jax.Array:
    """Negative powers of integers, rounded towards zero."""
    return jnp.power(x.astype(jnp.float32), int(y)).astype(x.dtype)


@operator("BitShift", 11)
def bitshift(x: jax.Array, y: jax.Array, direction: str) -> jax.Array:
    """Shifts by more bits than there are, or by a negative number, leave the sign alone."""
    x, y = jnp.broadcast_arrays(x, y)
    if direction not in ("LEFT", "RIGHT"):
        raise check.refuse(f"direction is {direction!r}", "give 'LEFT' or 'RIGHT'")
    return jnp.left_shift(x, y) if direction == "LEFT" else jnp.right_shift(x, y)


@operator("IsInf", 10)
def isinf(x: jax.Array, detect_negative: int = 1, detect_positive: int = 1) -> jax.Array:
    wanted = jnp.where(jnp.signbit(x), bool(detect_negative), bool(detect_positive))
    return jnp.isinf(x) & wanted


@operator("Clip", 6)
def clip(x: jax.Array, min: Any = None, max: Any = None) -> jax.Array:
    """Bounds are attributes before version 11, and inputs since."""
    x = jnp.asarray(x)
    x = x if min is None else jnp.maximum(x, jnp.asarray(min, x.dtype))
    return x if max is None else jnp.minimum(x, jnp.asarray(max, x.dtype))


@operator("Where", 9)
def where(condition: Any, x: Any, y: Any) -> Any:
    return library(condition, x, y).where(condition, x, y)
