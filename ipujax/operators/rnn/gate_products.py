"""The products of recurrences over all time steps at once, and those of tangents.

Tangents that are known to be zero cost nothing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike

from ipujax.ground import PyTree


def split_kernel(kernel: jax.Array, units: int) -> tuple[jax.Array, jax.Array]:
    """Splits a kernel into the rows for the inputs and the rows for the state."""
    inputs = kernel.shape[0] - units
    return kernel[:inputs], kernel[inputs:]


def multiply_all_steps(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Multiplies all steps by weights: [time, batch, n] and [n, m] to [time, batch, m]."""
    rows = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return (rows @ weights).reshape(*x.shape[:2], weights.shape[1])


def multiply_by_transposed(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns `x @ weights.T`, whose transpose is the faster plain `y @ weights`."""
    return lax.dot_general(x, weights, (((1,), (1,)), ((), ())))


def states_before_each_step(first: jax.Array, states: jax.Array) -> jax.Array:
    """Returns the state before each step: the first state, then all states but the last."""
    steps = states.shape[0]  # may be 0
    return jnp.concatenate([first[None], states[:-1]])[:steps]


def concatenate_last_axis(*parts: jax.Array) -> jax.Array:
    """Concatenates arrays [..., n], [..., m] and so on to [..., n + m + ...]."""
    return jnp.concatenate(parts, axis=-1)


def multiply_tangent(x: PyTree, weights: PyTree) -> PyTree:
    """Multiplies all steps by weights; returns a symbolic zero if an operand is one."""
    zeros = [part for part in (x, weights) if isinstance(part, SymbolicZero)]
    return zeros[0] if zeros else multiply_all_steps(x, weights)


def sum_broadcast(shape: tuple[int, ...], dtype: DTypeLike, *terms: PyTree) -> jax.Array:
    """Sums terms that are broadcast to a shape."""
    nonzero_terms = [term for term in terms if not isinstance(term, SymbolicZero)]
    return sum(nonzero_terms, jnp.zeros(shape, dtype))


def instantiate_tangent(x: PyTree) -> PyTree:
    """Returns a tangent as an array."""
    if not isinstance(x, SymbolicZero):
        return x
    aval: PyTree = x.aval
    return jnp.zeros(aval.shape, aval.dtype)
