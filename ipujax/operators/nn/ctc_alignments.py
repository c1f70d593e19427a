"""The sum over all alignments of a label with data, in log space, and its derivatives.

A label of n classes is seen through 2n + 1 states: n + 1 blanks, and the labels between them. Two
arrays hold the logarithms of what reaches them: `blank[i]`, the blank before label i, and
`label[i]`. One step lets each state stay, or be reached from its left: `left[i]`, what the blank
before label i and label i - 1 hold together, reaches both blank i and label i; but a label that
repeats its neighbour can be reached through the blank alone.

The backward pass needs no logarithms. Of what reached a state, a share came from staying and the
rest from its left; both are known from the forward pass, for all times at once. So the loop
back in time only deals posteriors out by shares, which keeps them exact: they neither vanish nor
grow, however long the sequence is.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.operators.nn.log_space import IMPOSSIBLE, NEVER, log_add


class Problem(NamedTuple):
    """A batch of labels and lengths, all within bounds.

    Attributes:
      labels: `[batch, longest]` int32.
      label_lengths: `[batch]` int32.
      steps: `[batch]` int32, the data's lengths.
    """

    labels: jax.Array
    label_lengths: jax.Array
    steps: jax.Array


class _States(NamedTuple):
    """Something per state, `[batch, longest + 1]` and `[batch, longest]`, or that over time."""

    blank: jax.Array
    label: jax.Array


@functools.partial(jax.jit, static_argnums=2)  # outside compiled code, loops compile once
def negative_log_likelihood(log_probs: jax.Array, problem: Problem, blank: int) -> jax.Array:
    """Minus the logarithm of the probability of all alignments of each label.

    Args:
      log_probs: `[time, batch, classes]` float32.
      problem: what to align.
      blank: the class of blanks.

    Returns:
      `[batch]` float32; infinite where no alignment has a probability, with zero gradients.
    """
    return _differentiable(log_probs, problem, blank)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _differentiable(log_probs: jax.Array, problem: Problem, blank: int) -> Any:
    final, _ = _forward(log_probs, problem, blank, keep=False)
    return _loss(_ends(final, problem))


def _forward_rule(log_probs: jax.Array, problem: Problem, blank: int) -> tuple[jax.Array, Any]:
    final, history = _forward(log_probs, problem, blank, keep=True)
    ends = _ends(final, problem)
    # The empty array tells the backward pass how many classes there are.
    return _loss(ends), (history, ends, problem, jnp.empty((0, log_probs.shape[2]), jnp.float32))


def _backward_rule(blank: int, residuals: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    history, ends, problem, of_classes = residuals
    possible = log_add(*ends) > IMPOSSIBLE
    weight = jnp.where(possible, -cotangent, 0.0)
    posteriors = _posteriors(history, ends, problem, weight)
    one_hot = jax.nn.one_hot(problem.labels, of_classes.shape[1], dtype=jnp.float32)
    of_labels = jnp.einsum("tbl,blc->tbc", posteriors.label, one_hot)
    return of_labels.at[:, :, blank].add(posteriors.blank.sum(axis=2)), None


_differentiable.defvjp(_forward_rule, _backward_rule)


def _forward(log_probs: jax.Array, problem: Problem, blank: int, keep: bool) -> tuple[_States, Any]:
    """The states after the last step, and, to keep, those before each step."""
    time, batch, _ = log_probs.shape
    longest = problem.labels.shape[1]
    above = jnp.maximum(log_probs, NEVER)
    wanted = jnp.broadcast_to(problem.labels, (time, batch, longest))
    of_labels = jnp.take_along_axis(above, wanted, axis=2, mode="clip")
    of_blank = above[:, :, blank, None]
    repeats = _repeats(problem.labels)
    start = _States(
        jnp.full((batch, longest + 1), NEVER, jnp.float32).at[:, 0].set(0.0),
        jnp.full((batch, longest), NEVER, jnp.float32),
    )

    def step(states: _States, now: Any) -> tuple[_States, _States | None]:
        alive, blank_now, label_now = now
        left = log_add(states.blank, _shifted(states.label))
        source = jnp.where(repeats, states.blank[:, :-1], left[:, :-1])
        moved = _States(left + blank_now, log_add(states.label, source) + label_now)
        return _choose(alive, moved, states), states if keep else None

    return lax.scan(step, start, (_alive(problem, time), of_blank, of_labels))


def _posteriors(history: _States, ends: Any, problem: Problem, weight: jax.Array) -> _States:
    """How probable each state is at each time, given the label; times `weight` `[batch]`."""
    time, _, longest = history.label.shape
    repeats = _repeats(problem.labels)
    differs = (~repeats).astype(jnp.float32)
    before = _shifted(history.label)
    from_blank = jax.nn.sigmoid(history.blank - before)
    left = log_add(history.blank, before)[..., :-1]
    source = jnp.where(repeats, history.blank[..., :-1], left)
    from_self = jax.nn.sigmoid(history.label - source)

    in_blank = weight * jax.nn.sigmoid(ends[0] - ends[1])
    lengths = problem.label_lengths[:, None]
    end = _States(
        jnp.where(jnp.arange(longest + 1) == lengths, in_blank[:, None], 0.0),
        jnp.where(jnp.arange(longest) == lengths - 1, (weight - in_blank)[:, None], 0.0),
    )

    def step(after: _States, now: Any) -> tuple[_States, _States]:
        alive, blank_share, self_share = now
        stayed = after.label * self_share
        moved = after.label - stayed
        direct = moved * differs
        through_left = after.blank + _padded(direct)
        to_blank = through_left * blank_share
        earlier = _States(
            to_blank + _padded(moved - direct), stayed + (through_left - to_blank)[:, 1:]
        )
        return _choose(alive, earlier, after), after

    alive = _alive(problem, time)
    _, posteriors = lax.scan(step, end, (alive, from_blank, from_self), reverse=True)
    return _States(*(jnp.where(alive, states, 0.0) for states in posteriors))


def _ends(final: _States, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """What ends in the last blank and in the last label, `[batch]` each."""
    lengths = problem.label_lengths[:, None]
    in_blank = jnp.take_along_axis(final.blank, lengths, axis=1)
    labels = _shifted(final.label)
    return in_blank[:, 0], jnp.take_along_axis(labels, lengths, axis=1)[:, 0]


def _loss(ends: tuple[jax.Array, jax.Array]) -> jax.Array:
    total = log_add(*ends)
    return jnp.where(total < IMPOSSIBLE, jnp.inf, -total)  # which keeps NaN


def _repeats(labels: jax.Array) -> jax.Array:
    """Whether each label is the one before it, `[batch, longest]`."""
    return jnp.pad(labels[:, 1:] == labels[:, :-1], ((0, 0), (1, 0)))[:, : labels.shape[1]]


def _alive(problem: Problem, time: int) -> jax.Array:
    """`[time, batch, 1]`: whether a time is within an example's data."""
    return (jnp.arange(time)[:, None] < problem.steps)[:, :, None]


def _choose(condition: jax.Array, one: _States, other: _States) -> _States:
    return _States(*(jnp.where(condition, a, b) for a, b in zip(one, other, strict=True)))


def _shifted(label: jax.Array) -> jax.Array:
    """Along with each blank, the label before it; before the first there is none."""
    return lax.pad(label, np.float32(NEVER), [*[(0, 0, 0)] * (label.ndim - 1), (1, 0, 0)])


def _padded(label: jax.Array) -> jax.Array:
    """Along with each blank, the label after it; after the last there is none."""
    return lax.pad(label, np.float32(0.0), [(0, 0, 0), (0, 1, 0)])
