"""Collectives that exchange data between replicas: `all_gather` and `all_to_all`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import PyTree
from ipujax.operators.collectives import check, require_collective_operand
from lowering import ops


@check.guard
def all_gather(x: ArrayLike, replication_factor: int, name: str | None = None) -> PyTree:
    """Gives every replica of a group the data of all of them.

    Args:
      x: this replica's array; or a list of arrays, of any dtypes, each of which is gathered.
      replication_factor: how many consecutive replicas make a group.
      name: a named scope for the operation.

    Returns:
      An array `[replication_factor, *x.shape]` whose row i is from the group's replica i; or a
      list of such.

    Raises:
      ConfigTypeError: (a `TypeError`) if the factor is no integer.
      CollectiveError: (a `ValueError`) if it is less than 1; when the program is compiled, if it
        does not divide the number of replicas.
    """
    factor = check.require_integer(replication_factor, "the replication_factor of all_gather", 1)
    with check.operator_scope(name):
        if isinstance(x, (list, tuple)):
            return [_all_gather_one_array(part, factor) for part in x]
        return _all_gather_one_array(x, factor)


def _all_gather_one_array(x: ArrayLike, factor: int) -> jax.Array:
    return ops.all_gather(require_collective_operand(x, "all_gather"), factor)


@check.guard
def all_to_all(
    x: ArrayLike,
    split_dimension: int,
    concat_dimension: int,
    replication_factor: int,
    name: str | None = None,
) -> jax.Array:
    """Sends block i of each replica's array to replica i.

    Replica i gets block i of every replica, in the order of the replicas. The gradient is
    `all_to_all` with the two dimensions exchanged.

    Args:
      x: this replica's array.
      split_dimension: the dimension that is cut into `replication_factor` blocks.
      concat_dimension: the dimension along which the blocks received are put together.
      replication_factor: how many consecutive replicas exchange their data.
      name: a named scope for the operation.

    Returns:
      An array of the size of `x`: `split_dimension` is `replication_factor` times shorter, then
      `concat_dimension` as many times longer.

    Raises:
      ConfigTypeError: (a `TypeError`) if the factor or a dimension is no integer.
      CollectiveError: (a `ValueError`) if the factor is less than 1, a dimension is not one of
        `x`, or `split_dimension` cannot be cut evenly; when the program is compiled, if the
        factor does not divide the number of replicas.
    """
    factor = check.require_integer(replication_factor, "the replication_factor of all_to_all", 1)
    array = require_collective_operand(x, "all_to_all")
    split = _check_dimension(array, split_dimension, "split_dimension")
    concat = _check_dimension(array, concat_dimension, "concat_dimension")
    extent = array.shape[split]
    if extent % factor:
        raise check.value_error(
            f"all_to_all cuts dimension {split} of an array {list(array.shape)} into {factor} "
            f"blocks, but {factor} does not divide {extent}",
            f"split another dimension, or pad this one to a multiple of {factor}",
        )
    shape = list(array.shape)
    shape[split] //= factor
    with check.operator_scope(name):
        blocks = array.reshape(*shape[:split], factor, *shape[split:])
        received = ops.all_to_all(jnp.moveaxis(blocks, split, 0), factor)
        shape[concat] *= factor
        return jnp.moveaxis(received, 0, concat).reshape(shape)


def _check_dimension(array: jax.Array, value: object, name: str) -> int:
    dimension = check.require_integer(value, f"the {name} of all_to_all")
    if not 0 <= dimension < array.ndim:
        raise check.value_error(
            f"the {name} of all_to_all is {dimension}, but the array {list(array.shape)} has "
            f"{array.ndim} dimension{'' if array.ndim == 1 else 's'}",
            f"use one of 0 to {array.ndim - 1}" if array.ndim else "give an array, not a scalar",
        )
    return dimension
