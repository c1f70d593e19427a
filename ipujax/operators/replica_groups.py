"""Collectives within groups of replicas, as PopART defines them.

The groups are a NumPy array of the replicas' numbers, [groups, replicas of a group].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.operators.all_to_all import all_gather
from ipujax.operators.replication import replication_index

Array = jax.Array
Groups = np.ndarray

# By the number of a `popart.CollectiveOperator`: a function of the values of a group,
# [replicas, ...], and a replica's index in it.
REDUCTIONS: tuple[Callable[[Array, Array], Array], ...] = (
    lambda rows, place: rows.sum(0, dtype=rows.dtype),
    lambda rows, place: rows.mean(0, dtype=rows.dtype),
    lambda rows, place: rows.prod(0, dtype=rows.dtype),
    lambda rows, place: rows.min(0),
    lambda rows, place: rows.max(0),
    lambda rows, place: (rows != 0).all(0).astype(rows.dtype),
    lambda rows, place: (rows != 0).any(0).astype(rows.dtype),
    lambda rows, place: jnp.square(rows).sum(0, dtype=rows.dtype),
    lambda rows, place: jax.lax.dynamic_index_in_dim(rows, place, 0, False),
)


def gather_group(x: Array, groups: Groups) -> Array:
    """Returns the values of all replicas of this replica's group, [replicas of a group, ...]."""
    return all_gather(x, groups.size)[jnp.asarray(groups)[_locate_replica(groups)[0]]]


def reduce_group(number: int, x: Array, groups: Groups) -> Array:
    """Reduces the values of this replica's group by the numbered reduction."""
    return REDUCTIONS[number](gather_group(x, groups), _locate_replica(groups)[1])


def scatter_reduced(number: int, x: Array, groups: Groups) -> Array:
    """Returns this replica's part of a reduction, flat: `[ceil(x.size / replicas of a group)]`.

    Past the end of the values it is 0.
    """
    size = groups.shape[1]
    flat, part = jnp.ravel(x), -(-x.size // size)
    total = reduce_group(number, jnp.pad(flat, (0, part * size - flat.size)), groups)
    return jax.lax.dynamic_slice_in_dim(total, _locate_replica(groups)[1] * part, part)


def exchange_in_group(x: Array, groups: Groups) -> Array:
    """Returns the parts of the group's values that are meant for this replica, [replicas, ...]."""
    size = groups.shape[1]
    rows = gather_group(x, groups).reshape(size, size, -1)
    return jax.lax.dynamic_index_in_dim(rows, _locate_replica(groups)[1], 1, False)


def _locate_replica(groups: Groups) -> tuple[Array, Array]:
    """Returns the number of this replica's group, and its index in it."""
    group, index_in_group = np.unravel_index(np.argsort(groups, None), groups.shape)
    index = replication_index()
    return jnp.asarray(group)[index], jnp.asarray(index_in_group)[index]
