"""The index of a replica, and division by the number of replicas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.operators.collectives import check, divide_total, require_collective_operand
from lowering import ops


@check.guard
def replication_index(name: str | None = None) -> jax.Array:
    """Returns this replica's index, an int32 scalar; 0 with one replica or outside compiled code.

    Args:
      name: a named scope for the operation.
    """
    with check.operator_scope(name):
        return ops.replication_index()


@check.guard
def replication_normalise(x: ArrayLike, name: str | None = None) -> jax.Array:
    """Divides by the number of replicas.

    Args:
      x: an array of floats or complex numbers.
      name: a named scope for the operation.

    Raises:
      ConfigTypeError: (a `TypeError`) if `x` is not of a floating-point type.
    """
    array = require_collective_operand(x, "replication_normalise")
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise check.type_error(
            f"replication_normalise takes floats, but x is {array.dtype}",
            "cast first: x.astype(jnp.float32)",
        )
    with check.operator_scope(name):
        return divide_total(array, ops.replica_count())
