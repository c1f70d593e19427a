"""The likelihood of a label over all its alignments with data, in log space, and its gradient.

A label of n classes has 2n + 1 states: n + 1 blanks, and the labels between them. Two
arrays hold the logarithms of what reaches them: `blank[i]`, the blank before label i, and
`label[i]`. One step lets each state stay, or be reached from its left: `left[i]`, what the blank
before label i and label i - 1 hold together, reaches both blank i and label i; but a label that
repeats its neighbour can be reached through the blank alone.

The backward pass needs no logarithms. Of what reached a state, a share came from staying and the
rest from its left; both are known from the forward pass, for all times at once. So the loop
back in time only splits posteriors by these shares, which keeps them exact: they neither vanish nor
grow, however long the sequence is.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.ground import PyTree
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
    """A value per state, `[batch, longest + 1]` and `[batch, longest]`, or that over time."""

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
    return _likelihood_with_gradient(log_probs, problem, blank)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _likelihood_with_gradient(log_probs: jax.Array, problem: Problem, blank: int) -> PyTree:
    final, _ = _run_forward(log_probs, problem, blank, keep=False)
    return _loss_from_ends(_final_log_probs(final, problem))


def _forward_rule(log_probs: jax.Array, problem: Problem, blank: int) -> tuple[jax.Array, PyTree]:
    final, history = _run_forward(log_probs, problem, blank, keep=True)
    ends = _final_log_probs(final, problem)
    # The empty array tells the backward pass how many classes there are.
    return _loss_from_ends(ends), (
        history,
        ends,
        problem,
        jnp.empty((0, log_probs.shape[2]), jnp.float32),
    )


def _backward_rule(blank: int, residuals: PyTree, cotangent: jax.Array) -> tuple[PyTree, ...]:
    history, ends, problem, of_classes = residuals
    possible = log_add(*ends) > IMPOSSIBLE
    weight = jnp.where(possible, -cotangent, 0.0)
    posteriors = _compute_posteriors(history, ends, problem, weight)
    one_hot = jax.nn.one_hot(problem.labels, of_classes.shape[1], dtype=jnp.float32)
    of_labels = jnp.einsum("tbl,blc->tbc", posteriors.label, one_hot)
    return of_labels.at[:, :, blank].add(posteriors.blank.sum(axis=2)), None


_likelihood_with_gradient.defvjp(_forward_rule, _backward_rule)


def _run_forward(
    log_probs: jax.Array, problem: Problem, blank: int, keep: bool
) -> tuple[_States, PyTree]:
    """Returns the states after the last step, and with `keep` those before each step."""
    time, batch, _ = log_probs.shape
    longest = problem.labels.shape[1]
    above = jnp.maximum(log_probs, NEVER)
    labels_over_time = jnp.broadcast_to(problem.labels, (time, batch, longest))
    of_labels = jnp.take_along_axis(above, labels_over_time, axis=2, mode="clip")
    of_blank = above[:, :, blank, None]
    repeats = _repeats_previous(problem.labels)
    start = _States(
        jnp.full((batch, longest + 1), NEVER, jnp.float32).at[:, 0].set(0.0),
        jnp.full((batch, longest), NEVER, jnp.float32),
    )

    def advance_states(states: _States, step_inputs: PyTree) -> tuple[_States, _States | None]:
        alive, blank_now, label_now = step_inputs
        from_left = log_add(states.blank, _label_before_blank(states.label))
        source = jnp.where(repeats, states.blank[:, :-1], from_left[:, :-1])
        moved = _States(from_left + blank_now, log_add(states.label, source) + label_now)
        return _select_states(alive, moved, states), states if keep else None

    return lax.scan(advance_states, start, (_is_within_data(problem, time), of_blank, of_labels))


def _compute_posteriors(
    history: _States, ends: PyTree, problem: Problem, weight: jax.Array
) -> _States:
    """Computes the posterior of each state at each time, given the label, times `weight`."""
    time, _, longest = history.label.shape
    repeats = _repeats_previous(problem.labels)
    differs = (~repeats).astype(jnp.float32)
    label_before = _label_before_blank(history.label)
    from_blank = jax.nn.sigmoid(history.blank - label_before)
    from_left = log_add(history.blank, label_before)[..., :-1]
    source = jnp.where(repeats, history.blank[..., :-1], from_left)
    from_self = jax.nn.sigmoid(history.label - source)

    in_blank = weight * jax.nn.sigmoid(ends[0] - ends[1])
    lengths = problem.label_lengths[:, None]
    end = _States(
        jnp.where(jnp.arange(longest + 1) == lengths, in_blank[:, None], 0.0),
        jnp.where(jnp.arange(longest) == lengths - 1, (weight - in_blank)[:, None], 0.0),
    )

    def step_back(later_posteriors: _States, step_inputs: PyTree) -> tuple[_States, _States]:
        alive, blank_share, self_share = step_inputs
        stayed = later_posteriors.label * self_share
        moved = later_posteriors.label - stayed
        direct = moved * differs
        through_left = later_posteriors.blank + _label_after_blank(direct)
        to_blank = through_left * blank_share
        earlier = _States(
            to_blank + _label_after_blank(moved - direct), stayed + (through_left - to_blank)[:, 1:]
        )
        return _select_states(alive, earlier, later_posteriors), later_posteriors

    alive = _is_within_data(problem, time)
    _, posteriors = lax.scan(step_back, end, (alive, from_blank, from_self), reverse=True)
    return _States(*(jnp.where(alive, states, 0.0) for states in posteriors))


def _final_log_probs(final: _States, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """Returns the log probabilities of ending in the last blank and the last label, `[batch]`."""
    lengths = problem.label_lengths[:, None]
    in_blank = jnp.take_along_axis(final.blank, lengths, axis=1)
    labels = _label_before_blank(final.label)
    return in_blank[:, 0], jnp.take_along_axis(labels, lengths, axis=1)[:, 0]


def _loss_from_ends(ends: tuple[jax.Array, jax.Array]) -> jax.Array:
    total = log_add(*ends)
    return jnp.where(total < IMPOSSIBLE, jnp.inf, -total)  # which keeps NaN


def _repeats_previous(labels: jax.Array) -> jax.Array:
    """Returns whether each label equals the one before it, `[batch, longest]`."""
    return jnp.pad(labels[:, 1:] == labels[:, :-1], ((0, 0), (1, 0)))[:, : labels.shape[1]]


def _is_within_data(problem: Problem, time: int) -> jax.Array:
    """Returns whether each time is within an example's data, `[time, batch, 1]`."""
    return (jnp.arange(time)[:, None] < problem.steps)[:, :, None]


def _select_states(condition: jax.Array, if_true: _States, if_false: _States) -> _States:
    return _States(*(jnp.where(condition, a, b) for a, b in zip(if_true, if_false, strict=True)))


def _label_before_blank(label: jax.Array) -> jax.Array:
    """Returns for each blank the label before it; the first blank gets `NEVER`."""
    return lax.pad(label, np.float32(NEVER), [*[(0, 0, 0)] * (label.ndim - 1), (1, 0, 0)])


def _label_after_blank(label: jax.Array) -> jax.Array:
    """Returns for each blank the label after it; the last blank gets 0."""
    return lax.pad(label, np.float32(0.0), [(0, 0, 0), (0, 1, 0)])
