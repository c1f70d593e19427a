"""ONNX activation functions, softmax and hardmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import normalize_axis
from ipujax.doors.onnx.operators.table import operator

_JAX_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "Mish": jax.nn.mish,
    "Relu": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid,
    "Softplus": jax.nn.softplus,
    "Softsign": jax.nn.soft_sign,
}

for _name, _function in _JAX_ACTIVATIONS.items():
    operator(_name)(_function)


@operator("Elu")
def elu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    return jax.nn.elu(x, alpha)


@operator("Celu", 12)
def celu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    return jax.nn.celu(x, alpha)


@operator("Selu")
def selu(
    x: jax.Array, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> jax.Array:
    return gamma * jax.nn.elu(x, alpha)


@operator("LeakyRelu")
def leaky_relu(x: jax.Array, alpha: float = 0.01) -> jax.Array:
    return jnp.where(x < 0, alpha * x, x)


@operator("PRelu", 7)
def prelu(x: jax.Array, slope: jax.Array) -> jax.Array:
    return jnp.where(x < 0, slope * x, x)


@operator("ThresholdedRelu", 10)
def thresholded_relu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    return jnp.where(x > alpha, x, jnp.zeros_like(x))


@operator("HardSigmoid")
def hard_sigmoid(x: jax.Array, alpha: float = 0.2, beta: float = 0.5) -> jax.Array:
    return jnp.clip(alpha * x + beta, 0, 1)


@operator("HardSwish", 14)
def hard_swish(x: jax.Array) -> jax.Array:
    return x * hard_sigmoid(x, 1 / 6, 0.5)


@operator("Shrink", 9)
def shrink(x: jax.Array, bias: float = 0.0, lambd: float = 0.5) -> jax.Array:
    low, high = (x + bias).astype(x.dtype), (x - bias).astype(x.dtype)
    return jnp.where(x < -lambd, low, jnp.where(x > lambd, high, jnp.zeros_like(x)))


@operator("Gelu", 20)
def gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    if approximate not in ("none", "tanh"):
        raise check.value_error(f"approximate is {approximate!r}", "give 'none' or 'tanh'")
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@operator("Swish", 24)
def swish(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    return x * jax.nn.sigmoid(alpha * x)


@operator("SwiGLU", 28)
def swiglu(gate: jax.Array, x: jax.Array, alpha: float = 1.0) -> jax.Array:
    return swish(gate, alpha) * x


def hardmax(x: jax.Array, axis: int) -> jax.Array:
    """Returns one at the first of the largest elements along an axis, else zero."""
    largest = jnp.argmax(x, axis)
    return jax.nn.one_hot(largest, x.shape[axis], dtype=x.dtype, axis=axis)


def _register_softmax_like(name: str, function: Callable[[jax.Array, int], jax.Array]) -> None:
    """Registers both versions: over one axis since 13, before over all axes from one on."""

    def apply_over_axis(x: jax.Array, axis: int = -1) -> jax.Array:
        return function(x, normalize_axis(axis, x.ndim))

    def apply_over_last_axes(x: jax.Array, axis: int = 1) -> jax.Array:
        start = normalize_axis(axis, x.ndim) if axis < 0 else min(axis, x.ndim)
        rows = jnp.reshape(x, (math.prod(x.shape[:start]), math.prod(x.shape[start:])))
        return function(rows, 1).reshape(x.shape)

    operator(name)(apply_over_last_axes)
    operator(name, 13)(apply_over_axis)


_register_softmax_like("Softmax", jax.nn.softmax)
_register_softmax_like("LogSoftmax", jax.nn.log_softmax)
_register_softmax_like("Hardmax", hardmax)
