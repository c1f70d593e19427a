"""PyTorch losses of outputs and targets of equal shapes, or of several outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.torch.operators.table import operator
from ipujax.doors.torch.operators.unary import absolute

Array = jax.Array
MEAN, SUM = 1, 2  # PyTorch's codes of reductions; 0 is none


def reduce_losses_by_code(losses: Array, reduction: int) -> Array:
    """Returns the mean or the sum of losses, or the losses themselves."""
    if reduction == MEAN:
        return jnp.mean(losses)
    return jnp.sum(losses) if reduction == SUM else losses


def clamp_at_zero(x: Array) -> Array:
    """Returns `torch.clamp_min(x, 0)`, whose derivative at 0 is 1."""
    return jnp.where(x >= 0, x, 0)


@operator("aten.mse_loss.default")
def mse(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return reduce_losses_by_code(jnp.square(x - target), reduction)


@operator("aten.l1_loss.default")
def l1(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return reduce_losses_by_code(absolute(x - target), reduction)


@operator("aten.smooth_l1_loss.default")
def smooth_l1(x: Array, target: Array, reduction: int = MEAN, beta: float = 1.0) -> Array:
    if beta == 0:
        return l1(x, target, reduction)
    distance = jnp.abs(x - target)
    losses = jnp.where(distance < beta, 0.5 * jnp.square(x - target) / beta, distance - 0.5 * beta)
    return reduce_losses_by_code(losses, reduction)


@operator("aten.huber_loss.default")
def huber(x: Array, target: Array, reduction: int = MEAN, delta: float = 1.0) -> Array:
    distance = jnp.abs(x - target)
    losses = jnp.where(
        distance < delta, 0.5 * jnp.square(x - target), delta * (distance - 0.5 * delta)
    )
    return reduce_losses_by_code(losses, reduction)


@jax.custom_jvp
def _cross_entropy(x: Array, target: Array) -> Array:
    logs = (jnp.maximum(jnp.log(x), -100), jnp.maximum(jnp.log1p(-x), -100))
    return -(target * logs[0] + (1 - target) * logs[1])


@_cross_entropy.defjvp
def _cross_entropy_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # PyTorch's derivative is finite at 0 and 1, where the loss is bounded too.
    x, target = primals
    slope = (x - target) / jnp.maximum((1 - x) * x, 1e-12)
    target_slope = jnp.log1p(-x) - jnp.log(x)
    return _cross_entropy(x, target), slope * tangents[0] + target_slope * tangents[1]


@operator("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    x: Array, target: Array, weight: Array | None = None, reduction: int = MEAN
) -> Array:
    losses = _cross_entropy(x, target)
    return reduce_losses_by_code(losses if weight is None else losses * weight, reduction)


@operator("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    x: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    scale = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    losses = (1 - target) * x - scale * jax.nn.log_sigmoid(x)
    return reduce_losses_by_code(losses if weight is None else losses * weight, reduction)


@operator("aten.kl_div.default")
def kl_div(x: Array, target: Array, reduction: int = MEAN, log_target: bool = False) -> Array:
    if log_target:
        return reduce_losses_by_code(jnp.exp(target) * (target - x), reduction)
    return reduce_losses_by_code(jax.scipy.special.xlogy(target, target) - target * x, reduction)
