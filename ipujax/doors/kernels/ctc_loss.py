"""The CTC loss (connectionist temporal classification), by the forward algorithm."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array

LOG_ZERO = -1e30
"""Stands for the logarithm of zero, with finite sums and derivatives."""


def ctc_losses(
    logs: Array, labels: Array, input_lengths: Array, label_counts: Array, blank: int
) -> Array:
    """Returns the loss of each sequence; that of an impossible one is about `-LOG_ZERO`.

    Args:
      logs: logarithms of probabilities, [time, batch, classes].
      labels: [batch, maximum number of labels].
      input_lengths: the lengths of the sequences, [batch].
      label_counts: the number of labels of each sequence, [batch].
      blank: the class that stands for no label.
    """
    # Blanks before, between and after the labels.
    states = jnp.full((labels.shape[0], 2 * labels.shape[1] + 1), blank).at[:, 1::2].set(labels)
    ends = _forward_log_probabilities(logs, states, blank, input_lengths)
    blank_end = jnp.take_along_axis(ends, 2 * label_counts[:, None], 1)[:, 0]
    last_label = jnp.maximum(2 * label_counts[:, None] - 1, 0)
    label_end = jnp.take_along_axis(ends, last_label, 1)[:, 0]
    return -jnp.where(label_counts > 0, jnp.logaddexp(blank_end, label_end), blank_end)


def _forward_log_probabilities(logs: Array, states: Array, blank: int, lengths: Array) -> Array:
    """Returns log probabilities of each state at the end of each sequence."""
    emitted = jnp.take_along_axis(logs, jnp.broadcast_to(states, (len(logs), *states.shape)), 2)
    emitted = jnp.maximum(emitted, LOG_ZERO)
    position = jnp.arange(states.shape[1])
    # A label may follow another one without a blank, unless they are the same.
    can_skip = (states != blank) & (states != jnp.roll(states, 2, 1)) & (position >= 2)

    def shift_states(alpha: Array, by: int) -> Array:
        return jnp.where(position >= by, jnp.roll(alpha, by, 1), LOG_ZERO)

    def advance_states(alpha: Array, entry: tuple[Array, Array]) -> tuple[Array, None]:
        time, emission = entry
        skipped = jnp.where(can_skip, shift_states(alpha, 2), LOG_ZERO)
        sums = jax.nn.logsumexp(jnp.stack([alpha, shift_states(alpha, 1), skipped]), 0)
        new = jnp.maximum(sums + emission, LOG_ZERO)
        return jnp.where((time < lengths)[:, None], new, alpha), None

    first = jnp.where(position < 2, emitted[0], LOG_ZERO)
    empty = jnp.where(position == 0, 0.0, LOG_ZERO)
    start = jnp.where((lengths > 0)[:, None], first, empty)
    return jax.lax.scan(advance_states, start, (jnp.arange(1, len(logs)), emitted[1:]))[0]
