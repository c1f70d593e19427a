"""ONNX classification losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array


@operator("NegativeLogLikelihoodLoss", 12)
def negative_log_likelihood(
    x: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """Computes the loss of [batch, classes, ...]; `ignore_index` is left out."""
    x, target = jnp.asarray(x), jnp.asarray(target)
    counts = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    labels = jnp.where(counts, target, 0)
    label_values = jnp.take_along_axis(x, labels[:, None], 1, mode="clip")[:, 0]
    weights = jnp.ones(target.shape, x.dtype)
    if weight is not None:
        weights = jnp.take(weight, labels, mode="clip")
    weights = jnp.where(counts, weights, 0).astype(x.dtype)
    losses = -label_values * weights
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / weights.sum()
    raise check.value_error(f"reduction is {reduction!r}", "use none, sum or mean")


@operator("SoftmaxCrossEntropyLoss", 12)
def softmax_cross_entropy(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """Returns the loss, and the logarithms of the probabilities."""
    logs = jax.nn.log_softmax(jnp.asarray(scores), 1)
    return negative_log_likelihood(logs, labels, weights, ignore_index, reduction), logs
