"""Checks of the operands of collectives, the mean over replicas, and the search for sums."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import ArrayChecks, CollectiveError, ConfigTypeError
from lowering import jaxpr, ops

check = ArrayChecks(ConfigTypeError, CollectiveError)


def require_collective_operand(x: ArrayLike | None, function: str) -> jax.Array:
    """Returns the operand of a collective as an array."""
    if isinstance(x, Mapping) or x is None:
        raise check.type_error(
            f"{function} got a {type(x).__name__}, but takes one array",
            f"use jax.tree.map(lambda leaf: {function}(leaf, ...), tree)",
        )
    return check.require_array(x, f"the operand of {function}")


def require_collective_numbers(x: ArrayLike | None, function: str) -> jax.Array:
    """Returns the operand of a collective that computes as an array of numbers."""
    values = require_collective_operand(x, function)
    if values.dtype == jnp.bool_:
        raise check.type_error(
            f"{function} got booleans, which have no sum", "cast first: x.astype(jnp.int32)"
        )
    return values


def divide_total(total: jax.Array, count: int | jax.Array) -> jax.Array:
    """Returns `total / count` in the dtype of `total`; integers are rounded towards zero."""
    return jax.lax.div(total, jnp.asarray(count, total.dtype))


def has_sums_in_loops(closed: jaxpr.ClosedJaxpr) -> bool:
    """Returns whether a loop of a traced program sums a value over replicas."""
    return ops.has_sums_in_loops(closed.jaxpr)
