"""PyTorch's CTC loss (connectionist temporal classification)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.doors.kernels import LOG_ZERO, ctc_losses
from ipujax.doors.torch.operators.losses import MEAN, SUM
from ipujax.doors.torch.operators.table import operator

Array = jax.Array


@operator("ipujax.ctc_loss.default")
def ctc_loss(
    logs: Array,
    targets: Array,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: int = MEAN,
    zero_infinity: bool = False,
) -> Array:
    """Computes the CTC loss of [time, batch, classes] or [time, classes]."""
    is_batch = logs.ndim == 3
    logs = logs if is_batch else logs[:, None]
    losses = _ctc_losses_of_batch(
        logs, targets, input_lengths, target_lengths, blank, zero_infinity
    )
    if reduction == MEAN:
        lengths = jnp.atleast_1d(jnp.asarray(target_lengths))
        return jnp.mean(losses / jnp.maximum(lengths, 1))
    if reduction == SUM:
        return jnp.sum(losses)
    return losses if is_batch else losses[0]


def _ctc_losses_of_batch(
    logs: Array,
    targets: Array,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int,
    zero_infinity: bool,
) -> Array:
    lengths = jnp.atleast_1d(jnp.asarray(target_lengths))
    input_lengths = jnp.atleast_1d(jnp.asarray(input_lengths))
    labels = _pad_labels(targets, lengths, logs.shape[1])
    steps = jnp.arange(logs.shape[0])[:, None]
    logs = _match_pytorch_gradient(logs, steps < input_lengths)
    losses = ctc_losses(logs, labels, input_lengths, lengths, blank)
    is_possible = losses < -LOG_ZERO / 2
    return jnp.where(is_possible, losses, 0 if zero_infinity else jnp.inf)


def _pad_labels(targets: Array, lengths: Array, batch: int) -> Array:
    """Returns labels [batch, longest], where they may be concatenated in one vector."""
    if targets.ndim == 2:
        return targets
    if targets.size == 0:
        return jnp.zeros((batch, 0), targets.dtype)
    starts = jnp.cumsum(lengths) - lengths
    positions = starts[:, None] + jnp.arange(targets.size)
    return targets[jnp.minimum(positions, targets.size - 1)]


def _match_pytorch_gradient(logs: Array, is_given: Array) -> Array:
    """Returns equal values with PyTorch's gradient, which includes that of a log-softmax."""
    total = jnp.sum(jnp.exp(logs), -1, keepdims=True)
    total = jnp.where(is_given[..., None], total, 0)
    return logs - (total - jax.lax.stop_gradient(total))
