"""Reductions over replicas that leave each replica with a part of the result."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.operators.collectives import (
    check,
    divide_total,
    require_collective_numbers,
    require_collective_operand,
)
from lowering import ops

# How this replica's part of the result comes from the group's sum (the two functions: of each
# replica's array before, of the sum after), ...
_BY_SUM: dict[
    str, tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array, int], jax.Array]]
] = {
    "COLLECTIVE_OP_ADD": (lambda x: x, lambda total, size: total),
    "COLLECTIVE_OP_SQUARE_ADD": (lambda x: x * x, lambda total, size: total),
    "COLLECTIVE_OP_MEAN": (lambda x: x, divide_total),
}
# ... or from that part of every replica's array, `[size, part]`, and this replica's index.
_BY_EXCHANGE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "COLLECTIVE_OP_MUL": lambda rows, place: jnp.prod(rows, axis=0, dtype=rows.dtype),
    "COLLECTIVE_OP_MIN": lambda rows, place: jnp.min(rows, axis=0),
    "COLLECTIVE_OP_MAX": lambda rows, place: jnp.max(rows, axis=0),
    "COLLECTIVE_OP_LOGICAL_AND": lambda rows, place: jnp.all(rows != 0, axis=0).astype(rows.dtype),
    "COLLECTIVE_OP_LOGICAL_OR": lambda rows, place: jnp.any(rows != 0, axis=0).astype(rows.dtype),
    "COLLECTIVE_OP_LOCAL": lambda rows, place: lax.dynamic_index_in_dim(rows, place, 0, False),
}
_OPS = (*_BY_SUM, *_BY_EXCHANGE)
_ARITHMETIC = (*_BY_SUM, "COLLECTIVE_OP_MUL")


@check.guard
def reduce_scatter(
    x: ArrayLike,
    replication_factor: int,
    op: str = "COLLECTIVE_OP_ADD",
    name: str | None = None,
) -> jax.Array:
    """Reduces arrays over a group of replicas, and gives each replica a part of the result.

    With two replicas, `[x0, y0, z0]` and `[x1, y1, z1]` become `[x0 + x1, y0 + y1]` on the first
    and `[z0 + z1, 0]` on the second.

    Args:
      x: this replica's array, of rank 1.
      replication_factor: how many consecutive replicas make a group.
      op: `COLLECTIVE_OP_` followed by `ADD`, `MUL`, `MIN`, `MAX`, `LOGICAL_AND`, `LOGICAL_OR`
        (numbers count as true unless 0, and come back as 0 and 1), `SQUARE_ADD` (the sum of
        squares), `LOCAL` (each replica's own values) or, from a later release of the original,
        `MEAN` (integers are rounded towards zero).
      name: a named scope for the operation.

    Returns:
      An array of `ceil(len(x) / replication_factor)` elements; those past the end of `x` are 0.

    Raises:
      ConfigTypeError: (a `TypeError`) if the factor is no integer, or `x` holds booleans and `op`
        is arithmetic.
      CollectiveError: (a `ValueError`) if the factor is less than 1, `op` is unknown or `x` is
        not of rank 1; when the program is compiled, if the factor does not divide the number of
        replicas.
    """
    size = check.require_integer(replication_factor, "the replication_factor of reduce_scatter", 1)
    if op not in _OPS:
        raise check.value_error(f"reduce_scatter has no op {op!r}", f"use one of {', '.join(_OPS)}")
    array = (require_collective_numbers if op in _ARITHMETIC else require_collective_operand)(
        x, "reduce_scatter"
    )
    if array.ndim != 1:
        raise check.value_error(
            f"reduce_scatter takes an array of rank 1, but x is {list(array.shape)}",
            "flatten it: x.reshape(-1)",
        )
    with check.operator_scope(name):
        return _reduce_part(array, size, op)


def _reduce_part(array: jax.Array, size: int, op: str) -> jax.Array:
    part = -(-len(array) // size)
    padded = jnp.pad(array, (0, part * size - len(array)))
    rows = padded.reshape(size, part)
    if op in _BY_SUM:
        map_input, map_total = _BY_SUM[op]
        return map_total(ops.reduce_scatter(map_input(rows), size), size)
    return _BY_EXCHANGE[op](ops.all_to_all(rows, size), ops.replication_index() % size)
