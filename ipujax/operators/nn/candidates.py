"""Candidates for sampled losses: classes drawn with probabilities that fall like Zipf's."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.checks.arrays import check
from ipujax.operators.random_keys import draw_key

Candidates = tuple[jax.Array, jax.Array, jax.Array]


@check.guard
def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: Any = None,
    name: str | None = None,
    *,
    key: Any = None,
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
    what = "log_uniform_candidate_sampler"
    classes = check.integer(range_max, f"range_max of {what}", 1)
    count = check.integer(num_sampled, f"num_sampled of {what}", 1)
    true_count = check.integer(num_true, f"num_true of {what}", 1)
    true = check.integers(true_classes, ("batch_size", true_count), f"the true classes of {what}")
    is_unique = check.flag(unique, f"`unique` of {what}")
    with check.scope(name):
        return sample(what, true, count, classes, draw_key(seed, key, what), is_unique)


def sample(
    what: str, true: jax.Array, count: int, classes: int, key: jax.Array, unique: bool = True
) -> Candidates:
    """As `log_uniform_candidate_sampler`, from a key and for the operator `what`.

    Raises:
      OperatorError: (a `ValueError`) more unique classes than there are.
    """
    if not unique:
        sampled = _draw(key, count, classes)
        of_true, of_sampled = (_probability(c, classes) * count for c in (true, sampled))
        return sampled, of_true, of_sampled
    if count > classes:
        raise check.refuse(
            f"{what} is to sample {count} different classes, but there are only {classes}",
            f"sample at most {classes}",
        )
    sampled, tries = _draw_unique(key, count, classes)
    of_true, of_sampled = (_chance(c, classes, tries) for c in (true, sampled))
    return sampled, of_true, of_sampled


def _draw(key: jax.Array, count: int, classes: int) -> jax.Array:
    """`count` independent classes, by the inverse of their distribution."""
    uniform = jax.random.uniform(key, (count,), jnp.float32)
    drawn = jnp.exp(uniform * math.log(classes + 1)).astype(jnp.int32) - 1
    return jnp.clip(drawn, 0, classes - 1)


@functools.partial(jax.jit, static_argnums=(1, 2))  # outside compiled code, loops compile once
def _draw_unique(key: jax.Array, count: int, classes: int) -> tuple[jax.Array, jax.Array]:
    """The first `count` different classes in a sequence of draws, and how many draws that took."""

    def body(state: Any) -> Any:
        block, kept, number, tries = state
        drawn = _draw(jax.random.fold_in(key, block), count, classes)
        new = _is_first(jnp.concatenate([kept, drawn]))[count:]
        place = number + jnp.cumsum(new, dtype=jnp.int32) - 1
        wanted = new & (place < count)
        kept = kept.at[jnp.where(wanted, place, count)].set(drawn, mode="drop")
        is_last = wanted & (place == count - 1)
        took = jnp.where(jnp.any(is_last), lax.argmax(is_last, 0, jnp.int32) + 1, count)
        return block + 1, kept, number + jnp.sum(wanted, dtype=jnp.int32), tries + took

    nothing_yet = jnp.full((count,), classes, jnp.int32)
    zero = jnp.int32(0)
    state = (zero, nothing_yet, zero, zero)
    _, kept, _, tries = lax.while_loop(lambda state: state[2] < count, body, state)
    return kept, tries


def _is_first(values: jax.Array) -> jax.Array:
    """Whether each value is not among those before it."""
    order = jnp.argsort(values, stable=True)
    ordered = values[order]
    differs = jnp.concatenate([jnp.ones(1, jnp.bool_), ordered[1:] != ordered[:-1]])
    return jnp.zeros_like(differs).at[order].set(differs)


def _probability(drawn: jax.Array, classes: int) -> jax.Array:
    return jnp.log1p(1.0 / (drawn.astype(jnp.float32) + 1.0)) / math.log(classes + 1)


def _chance(drawn: jax.Array, classes: int, tries: jax.Array) -> jax.Array:
    """How likely a class is among the results of so many draws."""
    return -jnp.expm1(tries * jnp.log1p(-_probability(drawn, classes)))
