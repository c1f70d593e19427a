"""The connectionist temporal classification loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.losses import MEAN, SUM
from ipujax.frontends.pytorch.operators.table import operator

Array = jax.Array
_NEVER = -1e30  # the logarithm of a probability of 0, whose derivatives are numbers


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
    """Of [time, batch, classes] or [time, classes]."""
    is_batch = logs.ndim == 3
    logs = logs if is_batch else logs[:, None]
    losses = _losses(logs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if reduction == MEAN:
        lengths = jnp.atleast_1d(jnp.asarray(target_lengths))
        return jnp.mean(losses / jnp.maximum(lengths, 1))
    if reduction == SUM:
        return jnp.sum(losses)
    return losses if is_batch else losses[0]


def _losses(
    logs: Array, targets: Array, input_lengths: Any, target_lengths: Any, blank: int, finite: bool
) -> Array:
    lengths = jnp.atleast_1d(jnp.asarray(target_lengths))
    input_lengths = jnp.atleast_1d(jnp.asarray(input_lengths))
    labels = _by_batch(targets, lengths, logs.shape[1])
    # Blanks before, between and after the labels.
    states = jnp.full((labels.shape[0], 2 * labels.shape[1] + 1), blank).at[:, 1::2].set(labels)
    steps = jnp.arange(logs.shape[0])[:, None]
    ends = _forward(_with_torchs_slope(logs, steps < input_lengths), states, blank, input_lengths)
    last = jnp.take_along_axis(ends, 2 * lengths[:, None], 1)[:, 0]
    before = jnp.take_along_axis(ends, jnp.maximum(2 * lengths[:, None] - 1, 0), 1)[:, 0]
    losses = -jnp.where(lengths > 0, jnp.logaddexp(last, before), last)
    is_possible = losses < -_NEVER / 2
    return jnp.where(is_possible, losses, 0 if finite else jnp.inf)


def _by_batch(targets: Array, lengths: Array, batch: int) -> Array:
    """Labels [batch, longest], where they may be one after the other."""
    if targets.ndim == 2:
        return targets
    if targets.size == 0:
        return jnp.zeros((batch, 0), targets.dtype)
    starts = jnp.cumsum(lengths) - lengths
    places = starts[:, None] + jnp.arange(targets.size)
    return targets[jnp.minimum(places, targets.size - 1)]


def _with_torchs_slope(logs: Array, is_given: Array) -> Array:
    """The same values; PyTorch's derivative has that of the log-softmax before in it."""
    total = jnp.sum(jnp.exp(logs), -1, keepdims=True)
    total = jnp.where(is_given[..., None], total, 0)
    return logs - (total - jax.lax.stop_gradient(total))


def _forward(logs: Array, states: Array, blank: int, lengths: Array) -> Array:
    """Logarithms of the probabilities to be in each state when a sequence ends."""
    emitted = jnp.take_along_axis(logs, jnp.broadcast_to(states, (len(logs), *states.shape)), 2)
    emitted = jnp.maximum(emitted, _NEVER)
    place = jnp.arange(states.shape[1])
    can_skip = (states != blank) & (states != jnp.roll(states, 2, 1)) & (place >= 2)

    def moved(alpha: Array, by: int) -> Array:
        return jnp.where(place >= by, jnp.roll(alpha, by, 1), _NEVER)

    def step(alpha: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
        time, emission = now
        ways = [alpha, moved(alpha, 1), jnp.where(can_skip, moved(alpha, 2), _NEVER)]
        new = jnp.maximum(jax.nn.logsumexp(jnp.stack(ways), 0) + emission, _NEVER)
        return jnp.where((time < lengths)[:, None], new, alpha), None

    first = jnp.where(place < 2, emitted[0], _NEVER)
    times = jnp.arange(1, len(logs))
    return jax.lax.scan(step, first, (times, emitted[1:]))[0]
