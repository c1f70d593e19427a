"""Sums and means over replicas, and a marker for values that are equal on all replicas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import PyTree
from ipujax.operators.collectives import check, divide_total, require_collective_numbers
from lowering import jaxpr, ops


@check.guard
def cross_replica_sum(
    x: ArrayLike, replica_group_size: int | None = None, name: str | None = None
) -> jax.Array:
    """Sums an array over the replicas.

    Its gradient is the `cross_replica_sum` of the cotangents, not the identity. With one replica
    it is the identity.

    Args:
      x: this replica's array of floats or integers. For a pytree, use `jax.tree.map`.
      replica_group_size: how many consecutive replicas make a group; each group has a sum of its
        own. `None` stands for all replicas.
      name: a named scope for the operation.

    Returns:
      An array like `x`, equal on all replicas of a group.

    Raises:
      ConfigTypeError: (a `TypeError`) if the size is no integer, or `x` holds booleans.
      CollectiveError: (a `ValueError`) if the size is less than 1; when the program is compiled,
        if it does not divide the number of replicas.
    """
    group = replica_group_size
    if group is not None:
        group = check.require_integer(group, "the replica_group_size of cross_replica_sum", 1)
    with check.operator_scope(name):
        return ops.cross_replica_sum(require_collective_numbers(x, "cross_replica_sum"), group)


@check.guard
def cross_replica_mean(
    x: ArrayLike, replica_group_size: int | None = None, name: str | None = None
) -> jax.Array:
    """Averages an array over the replicas; a later release of the original has it.

    Args:
      x: this replica's array; integers are divided with rounding towards zero.
      replica_group_size: as in `cross_replica_sum`, but 0 stands for all replicas too, as in the
        original.
      name: a named scope for the operation.

    Returns:
      An array like `x`, equal on all replicas of a group.

    Raises:
      ConfigTypeError: (a `TypeError`) if the size is no integer, or `x` holds booleans.
      CollectiveError: (a `ValueError`) if the size is negative; when the program is compiled, if
        it does not divide the number of replicas.
    """
    argument = "the replica_group_size of cross_replica_mean"
    group = replica_group_size
    if group is not None:
        group = (
            check.require_integer(group, argument, 1)
            if check.require_integer(group, argument)
            else None
        )
    with check.operator_scope(name):
        total = ops.cross_replica_sum(require_collective_numbers(x, "cross_replica_mean"), group)
        return divide_total(total, ops.replica_count() if group is None else group)


@check.guard
def assume_equal_across_replicas(tensors: object, inplace: bool = False) -> PyTree:
    """Passes on values that the program promises to be equal on all replicas.

    On hardware, a collective in a condition that comes out differently on the replicas waits for
    ever, of which compiling warns unless the condition is made of values that were marked so.
    Virtual replicas advance together, so that nothing hangs here; the warning is for programs that
    are to run elsewhere.

    Args:
      tensors: a pytree of arrays.
      inplace: hand on the arrays themselves. Otherwise they are copied, as in the original; since
        arrays cannot be changed, only the program's text shows it.

    Returns:
      A pytree like `tensors`, with the same values.

    Raises:
      ConfigTypeError: (a `TypeError`) if `inplace` is no bool.
    """
    check.require_array_leaves(tensors, "assume_equal_across_replicas")
    same = check.require_flag(inplace, "the inplace of assume_equal_across_replicas")
    with check.operator_scope("assume_equal_across_replicas"):
        arrays = jax.tree.map(jnp.asarray if same else jnp.copy, tensors)
        return jax.tree.map(lambda x: ops.assume_equal(x) if jaxpr.is_tracer(x) else x, arrays)
