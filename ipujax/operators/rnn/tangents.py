"""Sums of tangents of which some are known to be zero, and then cost nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ipujax.operators.rnn.products import product


def product_of(x: Any, weights: Any) -> Any:
    """`products.product`, but zero if one of its operands is; the other one is no tangent."""
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
