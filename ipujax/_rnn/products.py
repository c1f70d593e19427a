"""The products of recurrences that run over all time steps at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def cut(kernel: jax.Array, units: int) -> tuple[jax.Array, jax.Array]:
    """The rows of a kernel for the inputs, and those for the state."""
    inputs = kernel.shape[0] - units
    return kernel[:inputs], kernel[inputs:]


def product(x: jax.Array, weights: jax.Array) -> jax.Array:
    """`x[t] @ weights` for all steps: [time, batch, n] and [n, m] to [time, batch, m]."""
    rows = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return (rows @ weights).reshape(*x.shape[:2], weights.shape[1])


def summed_product(x: jax.Array, y: jax.Array) -> jax.Array:
    """The gradient of weights: `x[t].T @ y[t]` summed over the steps, [n, m].

    Args:
      x: what the weights were multiplied with, [time, batch, n].
      y: the cotangents of the products, [time, batch, m].
    """
    rows = x.shape[0] * x.shape[1]
    return x.reshape(rows, x.shape[2]).T @ y.reshape(rows, y.shape[2])


def shifted(first: jax.Array, states: jax.Array) -> jax.Array:
    """What each step found: the first state, then those after each step but the last."""
    steps = states.shape[0]  # may be 0
    return jnp.concatenate([first[None], states[:-1]])[:steps]


def side_by_side(*parts: jax.Array) -> jax.Array:
    """Arrays [..., n], [..., m] and so on as [..., n + m + ...]."""
    return jnp.concatenate(parts, axis=-1)
