"""The products of recurrences that run over all time steps at once, and those of tangents.

Of tangents, some are known to be zero, and then cost nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero


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


def of_tangents(x: Any, weights: Any) -> Any:
    """`product`, but zero if one of its operands is; the other one is no tangent."""
    zeros = [part for part in (x, weights) if isinstance(part, SymbolicZero)]
    return zeros[0] if zeros else product(x, weights)


def total(shape: tuple[int, ...], dtype: Any, *terms: Any) -> jax.Array:
    """The sum of terms, each of which is broadcast to a shape."""
    others = [term for term in terms if not isinstance(term, SymbolicZero)]
    return sum(others, jnp.zeros(shape, dtype))


def instantiated(x: Any) -> Any:
    """A tangent as an array."""
    if not isinstance(x, SymbolicZero):
        return x
    aval: Any = x.aval
    return jnp.zeros(aval.shape, aval.dtype)
