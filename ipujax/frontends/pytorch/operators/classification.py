"""Loss functions of scores of classes and targets that are classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.losses import MEAN, SUM, at_least_zero, reduced
from ipujax.frontends.pytorch.operators.table import operator

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
    """Of [batch, classes, ...] or [classes]; targets of floats are probabilities."""
    axis = 1 if scores.ndim > 1 else 0
    logs = jax.nn.log_softmax(scores, axis)
    if jnp.issubdtype(target.dtype, jnp.floating):
        return _of_probabilities(logs, target, axis, weight, reduction, label_smoothing)
    losses, weights = _picked(logs, target, weight, ignore_index)
    result = _weighted(losses, weights, reduction)
    if not label_smoothing:
        return result
    smooth = -jnp.sum(logs if weight is None else logs * _by_class(weight, logs, axis), axis)
    smooth = jnp.where(target == ignore_index, 0, smooth)
    share = label_smoothing / scores.shape[axis]
    return (1 - label_smoothing) * result + share * _weighted(smooth, weights, reduction)


def _of_probabilities(
    logs: Array, target: Array, axis: int, weight: Optional, reduction: int, smoothing: float
) -> Array:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    products = logs * target
    if weight is not None:
        products = products * _by_class(weight, logs, axis)
    losses = -jnp.sum(products, axis)
    return reduced(losses, reduction)


def _by_class(weight: Array, scores: Array, axis: int) -> Array:
    return weight.reshape(-1, *[1] * (scores.ndim - axis - 1))


def _picked(logs: Array, target: Array, weight: Optional, ignore_index: int) -> tuple[Any, Any]:
    """The weighted losses of the targets, and their weights; 0 for ignored ones."""
    axis = 1 if logs.ndim > 1 else 0
    kept = target != ignore_index
    classes = jnp.where(kept, target, 0)
    picked = jnp.take_along_axis(logs, jnp.expand_dims(classes, axis), axis).squeeze(axis)
    weights = kept.astype(logs.dtype)
    if weight is not None:
        weights = jnp.where(kept, weight[classes], 0)
    return jnp.where(kept, -picked * weights, 0), weights


def _weighted(losses: Array, weights: Array, reduction: int) -> Array:
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
    return _weighted(*_picked(logs, target, weight, ignore_index), reduction)


@operator("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_forward(
    logs: Array, target: Array, weight: Optional, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    losses, weights = _picked(logs, target, weight, ignore_index)
    total = jnp.zeros(()) if reduction not in (MEAN, SUM) else jnp.sum(weights)
    return _weighted(losses, weights, reduction), total


@operator("aten.multi_margin_loss.default")
def multi_margin(
    x: Array,
    target: Array,
    p: Any = 1,
    margin: Any = 1,
    weight: Optional = None,
    reduction: int = MEAN,
) -> Array:
    x = jnp.atleast_1d(x)
    target = target.reshape(*x.shape[:-1], 1)
    losses = at_least_zero(margin - jnp.take_along_axis(x, target, -1) + x) ** p
    if weight is not None:
        losses = losses * weight[target]
    is_other = jnp.arange(x.shape[-1]) != target
    return reduced(jnp.sum(jnp.where(is_other, losses, 0), -1) / x.shape[-1], reduction)


@operator("aten.multilabel_margin_loss.default")
def multilabel_margin(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return multilabel_margin_forward(x, target, reduction)[0]


@operator("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_forward(x: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """Targets are classes until the first -1; the second result is 1 for those."""
    shape = target.shape
    x, target = jnp.atleast_1d(x), jnp.atleast_1d(target)
    count = x.shape[-1]
    is_given = jnp.cumsum(target < 0, -1) == 0
    is_class = (target[..., None] == jnp.arange(count)) & is_given[..., None]
    is_target = is_class.any(-2)
    own = jnp.take_along_axis(x, jnp.where(is_given, target, 0), -1)
    losses = at_least_zero(1 - (own[..., :, None] - x[..., None, :]))
    counted = is_given[..., :, None] & ~is_target[..., None, :]
    losses = jnp.sum(jnp.where(counted, losses, 0), (-2, -1)) / count
    return reduced(losses, reduction), is_target.reshape(shape)
