"""What the operators of replication share: groups of replicas, and operands to exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import CollectiveError, ConfigTypeError

check = ArrayChecks(ConfigTypeError, CollectiveError)


def as_array(x: Any, function: str) -> jax.Array:
    """The operand of a collective, as an array."""
    if isinstance(x, Mapping) or x is None:
        raise check.refuse_type(
            f"{function} got a {type(x).__name__}, but takes one array",
            f"use jax.tree.map(lambda leaf: {function}(leaf, ...), tree)",
        )
    return check.array(x, f"the operand of {function}")


def as_number(x: Any, function: str) -> jax.Array:
    """The operand of a collective that computes, as an array of numbers."""
    values = as_array(x, function)
    if values.dtype == jnp.bool_:
        raise check.refuse_type(
            f"{function} got booleans, which have no sum", "cast first: x.astype(jnp.int32)"
        )
    return values


def divided(total: jax.Array, count: Any) -> jax.Array:
    """`total / count` in the dtype of `total`; integers are rounded towards zero."""
    return jax.lax.div(total, jnp.asarray(count, total.dtype))
