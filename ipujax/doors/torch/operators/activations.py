"""PyTorch activation functions and softmax."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.table import operator

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@operator("aten.threshold.default")
def threshold(x: jax.Array, threshold: Operand, value: object) -> jax.Array:
    return jnp.where(x <= threshold, jnp.asarray(value, x.dtype), x)


@operator("aten.hardtanh.default")
def hardtanh(x: jax.Array, low: ArrayLike = -1, high: ArrayLike = 1) -> jax.Array:
    # At a bound PyTorch's derivative is 0, unlike that of `jnp.clip`.
    low, high = jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


@operator("aten.relu6.default")
def relu6(x: jax.Array) -> jax.Array:
    return hardtanh(x, 0, 6)


@operator("aten.hardsigmoid.default")
def hardsigmoid(x: jax.Array) -> jax.Array:
    return hardtanh(x + 3, 0, 6) / 6


@operator("aten.hardswish.default")
def hardswish(x: jax.Array) -> jax.Array:
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, x, x * (x + 3) / 6))


@operator("aten.leaky_relu.default", "aten._prelu_kernel.default")
def leaky_relu(x: jax.Array, slope: ArrayLike = 0.01) -> jax.Array:
    return jnp.where(x > 0, x, x * slope)


@operator("aten.prelu.default")
def prelu(x: jax.Array, slope: jax.Array) -> jax.Array:
    if slope.size == 1 or x.ndim < 2:
        return leaky_relu(x, slope.reshape(()) if slope.size == 1 else slope)
    return leaky_relu(x, slope.reshape(-1, *[1] * (x.ndim - 2)))


@operator("aten.rrelu.default", takes_call=True)
def rrelu(
    call: Call,
    x: jax.Array,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> jax.Array:
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    return leaky_relu(x, jax.random.uniform(call.key, x.shape, x.dtype, lower, upper))


@operator("aten.elu.default")
def elu(x: jax.Array, alpha: Operand = 1, scale: Operand = 1, input_scale: Any = 1) -> jax.Array:
    below = jnp.where(x > 0, 0, x)
    return jnp.where(x > 0, x * scale, jnp.expm1(below * input_scale) * (alpha * scale))


@operator("aten.celu.default")
def celu(x: jax.Array, alpha: ArrayLike = 1.0) -> jax.Array:
    return elu(x, alpha, 1, 1 / alpha)


@operator("aten.selu.default")
def selu(x: jax.Array) -> jax.Array:
    return elu(x, _SELU_ALPHA, _SELU_SCALE)


@operator("aten.gelu.default")
def gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    if approximate == "tanh":
        tanh_argument = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + jnp.tanh(tanh_argument))
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


@operator("aten.silu.default")
def silu(x: jax.Array) -> jax.Array:
    return x * jax.lax.logistic(x)


@operator("aten.mish.default")
def mish(x: jax.Array) -> jax.Array:
    return x * jnp.tanh(softplus(x))


@operator("aten.softplus.default")
def softplus(x: jax.Array, beta: ArrayLike = 1, threshold: ArrayLike = 20) -> jax.Array:
    is_linear = x * beta > threshold
    return jnp.where(is_linear, x, jnp.log1p(jnp.exp(jnp.where(is_linear, 0, x * beta))) / beta)


@operator("aten.log_sigmoid.default")
def log_sigmoid(x: jax.Array) -> jax.Array:
    return jax.nn.log_sigmoid(x)


@operator("aten.hardshrink.default")
def hardshrink(x: jax.Array, limit: ArrayLike = 0.5) -> jax.Array:
    return jnp.where(jnp.abs(x) <= limit, 0, x)


@operator("aten.softshrink.default")
def softshrink(x: jax.Array, limit: Any = 0.5) -> jax.Array:
    return jnp.where(x > limit, x - limit, jnp.where(x < -limit, x + limit, x * 0))


@operator("aten.glu.default")
def glu(x: jax.Array, dim: int = -1) -> jax.Array:
    values, gates = jnp.split(x, 2, dim)
    return values * jax.lax.logistic(gates)


@operator(
    "aten.softmax.int", "aten._softmax.default", "aten.special_softmax.default", takes_call=True
)
def softmax(call: Call, x: jax.Array, dim: int, dtype: DTypeLike | None = None) -> jax.Array:
    return _softmax_of_any_rank(x.astype(call.aval.dtype), dim)


def _softmax_of_any_rank(x: jax.Array, dim: int) -> jax.Array:
    return jax.nn.softmax(x, dim if x.ndim else None)


@operator(
    "aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.default"
, takes_call=True)  # fmt: skip
def log_softmax(call: Call, x: jax.Array, dim: int, dtype: DTypeLike | None = None) -> jax.Array:
    return jax.nn.log_softmax(x.astype(call.aval.dtype), dim if x.ndim else None)


@operator("aten._safe_softmax.default", takes_call=True)
def safe_softmax(call: Call, x: jax.Array, dim: int, dtype: DTypeLike | None = None) -> jax.Array:
    return softmax_or_zero(x.astype(call.aval.dtype), dim)


def softmax_or_zero(x: jax.Array, dim: int) -> jax.Array:
    """Returns the softmax; values and derivatives are 0 where every score is minus infinity."""
    is_masked = jnp.max(x, dim, keepdims=True) == -jnp.inf
    return jnp.where(is_masked, 0, _softmax_of_any_rank(jnp.where(is_masked, 0, x), dim))


@operator("aten._masked_softmax.default")
def masked_softmax(
    x: jax.Array, mask: jax.Array, dim: int | None = None, mask_type: int | None = None
) -> jax.Array:
    return softmax_or_zero(
        jnp.where(broadcast_key_mask(mask, mask_type), -jnp.inf, x), -1 if dim is None else dim
    )


def broadcast_key_mask(mask: jax.Array, mask_type: int | None) -> jax.Array:
    """Shapes a mask for scores [batch, heads, queries, keys]; type 1 is a mask of keys."""
    return mask[:, None, None, :] if mask_type == 1 else mask
