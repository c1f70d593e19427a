"""The products of recurrences that run over all time steps at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def cut(kernel: jax.Array, units: int) -> tuple[jax.Array, jax.Array]:
    """The rows of a kernel for the inputs, and those for the state."""
    inputs = kernel.shape[0] - units
    return kernel[:inputs], kernel[inputs:]


def product(x: jax.Array, weights: jax.Array) -> jax.Array:
    """`x[t] @ weights` for all steps: [time, batch, n] and [n, m] to [time, batch, m]."""
    rows = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return (rows @ weights).reshape(*x.shape[:2], weights.shape[1])


def times_transposed(x: jax.Array, weights: jax.Array) -> jax.Array:
    """`x @ weights.T`, whose transpose is the plain `y @ weights`, the faster one of the two."""
    return lax.dot_general(x, weights, (((1,), (1,)), ((), ())))


def shifted(first: jax.Array, states: jax.Array) -> jax.Array:
    """What each step found: the first state, then those after each step but the last."""
    steps = states.shape[0]  # may be 0
    return jnp.concatenate([first[None], states[:-1]])[:steps]


def side_by_side(*parts: jax.Array) -> jax.Array:
    """Arrays [..., n], [..., m] and so on as [..., n + m + ...]."""
    return jnp.concatenate(parts, axis=-1)
