"""PyTorch elementwise arithmetic of two or more operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from jax.scipy import special
from jax.typing import ArrayLike

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.table import operator, promote_arguments
from ipujax.doors.torch.operators.unary import absolute

_OVERLOADS = (
    "default", "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor", "Scalar_Self",
    "Scalar_Other", "self_scalar", "other_scalar",
)  # fmt: skip


def _binary_overloads(*names: str) -> tuple[str, ...]:
    """Returns the overloads of binary operators that PyTorch has, also those in place alone.

    An operator in place has the name of the other one here, such as `aten.pow.Tensor` for
    `aten.pow_.Tensor`.
    """
    return tuple(
        f"aten.{name}.{overload}"
        for name in names
        for overload in _OVERLOADS
        if any(hasattr(getattr(torch.ops.aten, n, None), overload) for n in (name, f"{name}_"))
    )


@operator("aten.add.Tensor", "aten.add.Scalar", takes_call=True)
@promote_arguments
def add(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    return x + (y if alpha == 1 else alpha * y)


@operator(*_binary_overloads("sub", "subtract"), takes_call=True)
@promote_arguments
def sub(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    return x - (y if alpha == 1 else alpha * y)


@operator("aten.rsub.Tensor", "aten.rsub.Scalar", takes_call=True)
@promote_arguments
def rsub(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    return y - (x if alpha == 1 else alpha * x)


@operator(
    "aten.div.Tensor",
    "aten.div.Scalar",
    "aten.divide.Tensor",
    "aten.divide.Scalar",
    takes_call=True,
)
@operator("aten.true_divide.Tensor", "aten.true_divide.Scalar", takes_call=True)
@operator("aten.div.Tensor_mode", "aten.div.Scalar_mode", takes_call=True)
@operator("aten.divide.Tensor_mode", "aten.divide.Scalar_mode", takes_call=True)
@promote_arguments
def div(x: Operand, y: Operand, rounding_mode: str | None = None) -> jax.Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode is None:
        return jnp.divide(x, y)
    if jnp.issubdtype(jnp.result_type(x, y), jnp.integer):
        return lax.div(*jnp.broadcast_arrays(x, jnp.asarray(y, x.dtype)))
    return jnp.trunc(x / y)


@operator(*_binary_overloads("pow", "float_power"), takes_call=True)
@promote_arguments
def power(x: Operand, y: Operand) -> jax.Array:
    if isinstance(y, float) and y.is_integer() and abs(y) < _MAX_MULTIPLIED_POWER:
        y = int(y)  # becomes multiplications, which are differentiable everywhere
    if isinstance(y, jax.Array) and jnp.issubdtype(y.dtype, jnp.integer):
        # Only the integers 1 and -1 have integer inverses; the others' are rounded to 0.
        x = jnp.where((y < 0) & (jnp.abs(x) != 1), 0, x)
        return jnp.power(x, jnp.abs(y))
    return jnp.power(x, y)


_MAX_MULTIPLIED_POWER = 64.0


def _copysign(x: Operand, y: Operand) -> jax.Array:
    # The absolute value has the derivative 0 at 0.
    return absolute(x) * jnp.where(jnp.signbit(y), -1, 1).astype(x.dtype)


def _fmax(x: Operand, y: Operand) -> jax.Array:
    return jnp.where((x >= y) | jnp.isnan(y), x, y)


def _fmin(x: Operand, y: Operand) -> jax.Array:
    return jnp.where((x <= y) | jnp.isnan(y), x, y)


def _clamp_below(x: Operand, low: Operand) -> jax.Array:
    """Returns `x` where it is not below a bound, with derivative 1 at the bound."""
    return jnp.where(x < low, low, x)


def _clamp_above(x: Operand, high: Operand) -> jax.Array:
    return jnp.where(x > high, high, x)


@jax.custom_jvp
def _nextafter(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.nextafter(x, y)


@_nextafter.defjvp
def _nextafter_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, y = primals
    result = _nextafter(x, y)
    return result, jnp.broadcast_to(jnp.where(x == y, 0, tangents[0]), result.shape)


# Computed in the dtype of the result.
_PROMOTED: dict[str, Callable[..., Operand]] = {
    "atan2 arctan2": jnp.arctan2,
    "bitwise_and __and__": jnp.bitwise_and,
    "bitwise_left_shift __lshift__": jnp.left_shift,
    "bitwise_or __or__": jnp.bitwise_or,
    "bitwise_right_shift __rshift__": jnp.right_shift,
    "bitwise_xor __xor__": jnp.bitwise_xor,
    "clamp_max": _clamp_above,
    "clamp_min": _clamp_below,
    "copysign": _copysign,
    "floor_divide": jnp.floor_divide,
    "fmax": _fmax,
    "fmin": _fmin,
    "fmod": jnp.fmod,
    "gcd": jnp.gcd,
    "heaviside": lambda x, y: jnp.where(x == 0, y, (x > 0).astype(x.dtype)),
    "hypot": jnp.hypot,
    "igamma special_gammainc": special.gammainc,
    "igammac special_gammaincc": special.gammaincc,
    "lcm": jnp.lcm,
    "ldexp": lambda x, y: x * jnp.exp2(y),
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "mul multiply": jnp.multiply,
    "nextafter": _nextafter,
    "remainder": jnp.remainder,
    "special_xlog1py": special.xlog1py,
    "special_zeta": special.zeta,
    "xlogy special_xlogy": special.xlogy,
}

# Computed with the operands as they are; comparisons promote them to a common dtype.
_KEEP_OPERAND_DTYPES: dict[str, Callable[..., Operand]] = {
    "eq": jnp.equal,
    "ge greater_equal": jnp.greater_equal,
    "gt greater": jnp.greater,
    "le less_equal": jnp.less_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "lt less": jnp.less,
    "ne not_equal": jnp.not_equal,
}

for _names, _function in _PROMOTED.items():
    operator(*_binary_overloads(*_names.split()), takes_call=True)(promote_arguments(_function))
operator("aten.max.other", takes_call=True)(promote_arguments(jnp.maximum))
operator("aten.min.other", takes_call=True)(promote_arguments(jnp.minimum))
for _names, _function in _KEEP_OPERAND_DTYPES.items():
    operator(*_binary_overloads(*_names.split()))(_function)


@operator(
    "aten.clamp.default",
    "aten.clamp.Tensor",
    "aten.clip.default",
    "aten.clip.Tensor",
    takes_call=True,
)
@promote_arguments
def clamp(x: jax.Array, min: ArrayLike | None = None, max: Operand = None) -> jax.Array:
    x = x if min is None else _clamp_below(x, min)
    return x if max is None else _clamp_above(x, max)


@operator("aten.lerp.Scalar", "aten.lerp.Tensor", takes_call=True)
@promote_arguments
def lerp(start: jax.Array, end: jax.Array, weight: ArrayLike) -> jax.Array:
    return start + weight * (end - start)


@operator("aten.addcmul.default", takes_call=True)
@promote_arguments
def addcmul(x: jax.Array, y: jax.Array, z: jax.Array, value: ArrayLike = 1) -> jax.Array:
    return x + (y * z if value == 1 else value * (y * z))


@operator("aten.addcdiv.default", takes_call=True)
@promote_arguments
def addcdiv(x: jax.Array, y: jax.Array, z: jax.Array, value: ArrayLike = 1) -> jax.Array:
    return x + (y / z if value == 1 else value * (y / z))


@operator("aten.complex.default")
def complex_(real: jax.Array, imaginary: jax.Array) -> jax.Array:
    return lax.complex(*jnp.broadcast_arrays(real, imaginary))


@operator("aten.polar.default")
def polar(radius: jax.Array, angle: jax.Array) -> jax.Array:
    return lax.complex(radius * lax.cos(angle), radius * lax.sin(angle))
