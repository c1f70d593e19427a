"""PyTorch's CTC loss (connectionist temporal classification)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.torch.operators.losses import MEAN, SUM
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
_LOG_ZERO = -1e30  # stands for log(0), with finite derivatives


@operator("ipujax.ctc_loss.default")
def ctc_loss(
    logs: Array,
    targets: Array,
    input_lengths: Any,
    target_lengths: Any,
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
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
) -> Array:
    lengths = jnp.atleast_1d(jnp.asarray(target_lengths))
    input_lengths = jnp.atleast_1d(jnp.asarray(input_lengths))
    labels = _pad_labels(targets, lengths, logs.shape[1])
    # Blanks before, between and after the labels.
    states = jnp.full((labels.shape[0], 2 * labels.shape[1] + 1), blank).at[:, 1::2].set(labels)
    steps = jnp.arange(logs.shape[0])[:, None]
    ends = _forward_log_probabilities(
        _match_pytorch_gradient(logs, steps < input_lengths), states, blank, input_lengths
    )
    blank_end = jnp.take_along_axis(ends, 2 * lengths[:, None], 1)[:, 0]
    label_end = jnp.take_along_axis(ends, jnp.maximum(2 * lengths[:, None] - 1, 0), 1)[:, 0]
    losses = -jnp.where(lengths > 0, jnp.logaddexp(blank_end, label_end), blank_end)
    is_possible = losses < -_LOG_ZERO / 2
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


def _forward_log_probabilities(logs: Array, states: Array, blank: int, lengths: Array) -> Array:
    """Returns log probabilities of each state at the end of each sequence."""
    emitted = jnp.take_along_axis(logs, jnp.broadcast_to(states, (len(logs), *states.shape)), 2)
    emitted = jnp.maximum(emitted, _LOG_ZERO)
    position = jnp.arange(states.shape[1])
    can_skip = (states != blank) & (states != jnp.roll(states, 2, 1)) & (position >= 2)

    def shift_states(alpha: Array, by: int) -> Array:
        return jnp.where(position >= by, jnp.roll(alpha, by, 1), _LOG_ZERO)

    def advance_ctc_states(
        alpha: Array, time_and_emission: tuple[Array, Array]
    ) -> tuple[Array, None]:
        time, emission = time_and_emission
        candidates = [
            alpha,
            shift_states(alpha, 1),
            jnp.where(can_skip, shift_states(alpha, 2), _LOG_ZERO),
        ]
        new = jnp.maximum(jax.nn.logsumexp(jnp.stack(candidates), 0) + emission, _LOG_ZERO)
        return jnp.where((time < lengths)[:, None], new, alpha), None

    first = jnp.where(position < 2, emitted[0], _LOG_ZERO)
    times = jnp.arange(1, len(logs))
    return jax.lax.scan(advance_ctc_states, first, (times, emitted[1:]))[0]
