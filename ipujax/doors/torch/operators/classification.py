"""PyTorch classification losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.losses import MEAN, SUM, clamp_at_zero, reduce_losses_by_code
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
Optional = jax.Array | None


@operator("aten.cross_entropy_loss.default")
def cross_entropy(
    scores: Array,
    target: Array,
    weight: Optional = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Array:
    """Computes the loss of [batch, classes, ...] or [classes]; float targets are probabilities."""
    axis = 1 if scores.ndim > 1 else 0
    logs = jax.nn.log_softmax(scores, axis)
    if jnp.issubdtype(target.dtype, jnp.floating):
        return _cross_entropy_of_probabilities(
            logs, target, axis, weight, reduction, label_smoothing
        )
    losses, weights = _compute_target_losses(logs, target, weight, ignore_index)
    result = _reduce_weighted_losses(losses, weights, reduction)
    if not label_smoothing:
        return result
    uniform_losses = -jnp.sum(
        logs if weight is None else logs * _reshape_to_classes(weight, logs, axis), axis
    )
    uniform_losses = jnp.where(target == ignore_index, 0, uniform_losses)
    smoothing_per_class = label_smoothing / scores.shape[axis]
    return (1 - label_smoothing) * result + smoothing_per_class * _reduce_weighted_losses(
        uniform_losses, weights, reduction
    )


def _cross_entropy_of_probabilities(
    logs: Array, target: Array, axis: int, weight: Optional, reduction: int, smoothing: float
) -> Array:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    products = logs * target
    if weight is not None:
        products = products * _reshape_to_classes(weight, logs, axis)
    losses = -jnp.sum(products, axis)
    return reduce_losses_by_code(losses, reduction)


def _reshape_to_classes(weight: Array, scores: Array, axis: int) -> Array:
    return weight.reshape(-1, *[1] * (scores.ndim - axis - 1))


def _compute_target_losses(
    logs: Array, target: Array, weight: Optional, ignore_index: int
) -> tuple[Operand, Operand]:
    """Returns the weighted losses of the targets and their weights; 0 for ignored targets."""
    axis = 1 if logs.ndim > 1 else 0
    is_used = target != ignore_index
    classes = jnp.where(is_used, target, 0)
    target_logs = jnp.take_along_axis(logs, jnp.expand_dims(classes, axis), axis).squeeze(axis)
    weights = is_used.astype(logs.dtype)
    if weight is not None:
        weights = jnp.where(is_used, weight[classes], 0)
    return jnp.where(is_used, -target_logs * weights, 0), weights


def _reduce_weighted_losses(losses: Array, weights: Array, reduction: int) -> Array:
    if reduction == MEAN:
        return jnp.sum(losses) / jnp.sum(weights)
    return jnp.sum(losses) if reduction == SUM else losses


@operator("aten.nll_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss2d.default")
def nll(
    logs: Array,
    target: Array,
    weight: Optional = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> Array:
    return _reduce_weighted_losses(
        *_compute_target_losses(logs, target, weight, ignore_index), reduction
    )


@operator("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_forward(
    logs: Array, target: Array, weight: Optional, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    losses, weights = _compute_target_losses(logs, target, weight, ignore_index)
    total = jnp.zeros(()) if reduction not in (MEAN, SUM) else jnp.sum(weights)
    return _reduce_weighted_losses(losses, weights, reduction), total


@operator("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_forward(x: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """Returns the loss, and which classes are targets: all classes before the first -1."""
    shape = target.shape
    x, target = jnp.atleast_1d(x), jnp.atleast_1d(target)
    count = x.shape[-1]
    is_label = jnp.cumsum(target < 0, -1) == 0
    is_class = (target[..., None] == jnp.arange(count)) & is_label[..., None]
    is_target = is_class.any(-2)
    target_scores = jnp.take_along_axis(x, jnp.where(is_label, target, 0), -1)
    losses = clamp_at_zero(1 - (target_scores[..., :, None] - x[..., None, :]))
    is_counted = is_label[..., :, None] & ~is_target[..., None, :]
    losses = jnp.sum(jnp.where(is_counted, losses, 0), (-2, -1)) / count
    return reduce_losses_by_code(losses, reduction), is_target.reshape(shape)
