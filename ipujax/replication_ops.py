"""What a replica knows of itself: its number, and how many there are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.operators.collectives import as_array, check, divided
from lowering import ops

__all__ = ["replication_index", "replication_normalise"]


def __dir__() -> list[str]:
    return __all__


@check.guard
def replication_index(name: str | None = None) -> jax.Array:
    """This replica's number, an int32 scalar; 0 with one replica and outside compiled code.

    Args:
      name: a named scope for the operation.
    """
    with check.scope(name):
        return ops.replication_index()


@check.guard
def replication_normalise(x: Any, name: str | None = None) -> jax.Array:
    """Divides by the number of replicas.

    Args:
      x: an array of floats or complex numbers.
      name: a named scope for the operation.

    Raises:
      ConfigTypeError: (a `TypeError`) if `x` is not of a floating-point type.
    """
    array = as_array(x, "replication_normalise")
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise check.refuse_type(
            f"replication_normalise takes floats, but x is {array.dtype}",
            "cast first: x.astype(jnp.float32)",
        )
    with check.scope(name):
        return divided(array, ops.replica_count())
