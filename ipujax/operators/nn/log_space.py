"""Sums of probabilities that are represented by their natural logarithms."""

from __future__ import annotations

import jax
import jax.numpy as jnp

NEVER = -1e30
"""The logarithm of probability 0: finite, so that differences are finite too."""

IMPOSSIBLE = NEVER / 2
"""A log probability below this has a factor of probability 0."""


def log_add(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns log(exp(a) + exp(b) ) of finite numbers.

    Its error is one rounding of a number near 1; log1p costs the IPU 30 times as much as log, and
    the sums over time round to more than it gains.
    """
    return jnp.maximum(a, b) + jnp.log(1.0 + jnp.exp(-jnp.abs(a - b)))
