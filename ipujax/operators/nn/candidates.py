"""Samples candidate classes for sampled losses, from a log-uniform (Zipf-like) distribution."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check
from ipujax.operators.random_keys import choose_random_key

Candidates = tuple[jax.Array, jax.Array, jax.Array]


@check.guard
def log_uniform_candidate_sampler(
    true_classes: ArrayLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: ArrayLike | None = None,
    name: str | None = None,
    *,
    key: ArrayLike | None = None,
) -> Candidates:
    """Draws classes, class c with probability log((c + 2) / (c + 1)) / log(range_max + 1).

    An addition to the seed's `nn_ops`, whose losses take what TensorFlow's function of this name
    returns. The same seed draws the same classes each time (fact nn.sampler_seed).

    Args:
      true_classes: `[batch_size, num_true]` integers.
      num_true: how many classes each example has.
      num_sampled: how many classes to draw.
      unique: draw until that many different ones are found; this takes long if they are nearly
        all there are of many.
      range_max: how many classes there are.
      seed: an integer.
      name: a named scope for the operation.
      key: a JAX key, instead of a seed. With neither, compiled code draws from the device's seed.

    Returns:
      The classes drawn, `[num_sampled]` int32 (true ones may be among them); and how often each
      class is expected among them, float32, for the true ones `[batch_size, num_true]` and for
      those drawn `[num_sampled]`. With `unique`, this is the chance to be drawn at all in as many
      draws as it took.

    Raises:
      ConfigTypeError: (a `TypeError`) arrays, numbers or a seed of wrong types.
      OperatorError: (a `ValueError`) shapes that do not fit, numbers below 1, more unique classes
        than there are, both a seed and a key, or neither outside compiled code.
    """
    operator = "log_uniform_candidate_sampler"
    classes = check.require_integer(range_max, f"range_max of {operator}", 1)
    count = check.require_integer(num_sampled, f"num_sampled of {operator}", 1)
    true_count = check.require_integer(num_true, f"num_true of {operator}", 1)
    true = check.require_integers(
        true_classes, ("batch_size", true_count), f"the true classes of {operator}"
    )
    is_unique = check.require_flag(unique, f"`unique` of {operator}")
    with check.operator_scope(name):
        return sample_candidates(
            operator, true, count, classes, choose_random_key(seed, key, operator), is_unique
        )


def sample_candidates(
    operator: str, true: jax.Array, count: int, classes: int, key: jax.Array, unique: bool = True
) -> Candidates:
    """Samples candidates from a key, for the operator named in errors.

    Raises:
      OperatorError: (a `ValueError`) more unique classes than there are.
    """
    if not unique:
        sampled = _draw_log_uniform_classes(key, count, classes)
        of_true, of_sampled = (_class_probability(c, classes) * count for c in (true, sampled))
        return sampled, of_true, of_sampled
    if count > classes:
        raise check.value_error(
            f"{operator} is to sample {count} different classes, but there are only {classes}",
            f"sample at most {classes}",
        )
    sampled, tries = _draw_distinct_classes(key, count, classes)
    of_true, of_sampled = (_inclusion_probability(c, classes, tries) for c in (true, sampled))
    return sampled, of_true, of_sampled


def _draw_log_uniform_classes(key: jax.Array, count: int, classes: int) -> jax.Array:
    """Draws `count` independent classes by inverting their distribution."""
    uniform = jax.random.uniform(key, (count,), jnp.float32)
    drawn = jnp.exp(uniform * math.log(classes + 1)).astype(jnp.int32) - 1
    return jnp.clip(drawn, 0, classes - 1)


@functools.partial(jax.jit, static_argnums=(1, 2))  # outside compiled code, loops compile once
def _draw_distinct_classes(key: jax.Array, count: int, classes: int) -> tuple[jax.Array, jax.Array]:
    """Draws `count` different classes; returns them and the number of draws that took."""

    def draw_block(state: PyTree) -> PyTree:
        block, distinct, number, tries = state
        drawn = _draw_log_uniform_classes(jax.random.fold_in(key, block), count, classes)
        new = _is_first_occurrence(jnp.concatenate([distinct, drawn]))[count:]
        slot = number + jnp.cumsum(new, dtype=jnp.int32) - 1
        is_accepted = new & (slot < count)
        distinct = distinct.at[jnp.where(is_accepted, slot, count)].set(drawn, mode="drop")
        is_last = is_accepted & (slot == count - 1)
        took = jnp.where(jnp.any(is_last), lax.argmax(is_last, 0, jnp.int32) + 1, count)
        return block + 1, distinct, number + jnp.sum(is_accepted, dtype=jnp.int32), tries + took

    nothing_yet = jnp.full((count,), classes, jnp.int32)
    zero = jnp.int32(0)
    state = (zero, nothing_yet, zero, zero)
    _, kept, _, tries = lax.while_loop(lambda state: state[2] < count, draw_block, state)
    return kept, tries


def _is_first_occurrence(values: jax.Array) -> jax.Array:
    """Returns whether each value differs from all values before it."""
    order = jnp.argsort(values, stable=True)
    ordered = values[order]
    differs = jnp.concatenate([jnp.ones(1, jnp.bool_), ordered[1:] != ordered[:-1]])
    return jnp.zeros_like(differs).at[order].set(differs)


def _class_probability(drawn: jax.Array, classes: int) -> jax.Array:
    return jnp.log1p(1.0 / (drawn.astype(jnp.float32) + 1.0)) / math.log(classes + 1)


def _inclusion_probability(drawn: jax.Array, classes: int, tries: jax.Array) -> jax.Array:
    """Returns the probability that a class is among the results of `tries` draws."""
    return -jnp.expm1(tries * jnp.log1p(-_class_probability(drawn, classes)))
