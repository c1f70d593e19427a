"""PopART's own collectives: what replicas make of one another's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.all_to_all_op import all_gather
from ipujax.cross_replica_ops import cross_replica_mean, cross_replica_sum
from ipujax.frontends.checks import check
from ipujax.frontends.graphs import Call
from ipujax.frontends.onnx.operators.table import operator
from ipujax.replication_ops import replication_index

Array = jax.Array

REPLICAS = "__replicas"
"""The mark of a node that says how many replicas there are; without it there is one group."""

_OPERATOR, _GROUP = "__collectiveOperator", "__collectiveCommGroup"
_CONSECUTIVE, _ORTHOGONAL = 1, 2

# By the number of the operator: of the values of a group [replicas, ...], and a replica's place.
_REDUCTIONS: tuple[Callable[[Array, Array], Array], ...] = (
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
_OF_ALL = {0: cross_replica_sum, 1: cross_replica_mean}


@operator("ai.graphcore.ReplicatedAllReduce", folded=False)
def all_reduce(call: Call, x: Array) -> Array:
    """A reduction over the replicas of a group, which all of them get."""
    x, kind, groups = jnp.asarray(x), call.node.marks.get(_OPERATOR, 0), _groups(call)
    if len(groups) == 1 and kind in _OF_ALL:
        return _OF_ALL[kind](x)
    return _reduced(kind, x, groups)


@operator("ai.graphcore.ReplicatedReduceScatter", folded=False)
def reduce_scatter(call: Call, x: Array) -> Array:
    """The same, flat, dealt out: `[ceil(x.size / replicas of a group)]`; past the end it is 0."""
    kind, groups = call.node.marks.get(_OPERATOR, 0), _groups(call)
    size = groups.shape[1]
    flat, part = jnp.ravel(x), -(-x.size // size)
    total = _reduced(kind, jnp.pad(flat, (0, part * size - flat.size)), groups)
    return jax.lax.dynamic_slice_in_dim(total, _place(groups)[1] * part, part)


def _groups(call: Call) -> np.ndarray[Any, Any]:
    """The numbers of the replicas in each group, [groups, replicas of a group]."""
    kind, size = call.node.marks.get(_GROUP, (0, 0))
    count = call.node.marks.get(REPLICAS, size or 1)
    numbers = np.arange(count)
    if kind not in (_CONSECUTIVE, _ORTHOGONAL):
        return numbers.reshape(1, -1) if kind == 0 else numbers.reshape(-1, 1)
    if not size or count % size:
        raise check.refuse(
            f"a collective over groups of {size} replicas, of which there are {count}",
            f"use a divisor of {count}",
        )
    consecutive = kind == _CONSECUTIVE
    return numbers.reshape(-1, size) if consecutive else numbers.reshape(size, -1).T


def _place(groups: np.ndarray[Any, Any]) -> tuple[Array, Array]:
    """This replica's group, and its place in it."""
    group, place = np.unravel_index(np.argsort(groups, None), groups.shape)
    index = replication_index()
    return jnp.asarray(group)[index], jnp.asarray(place)[index]


def _reduced(kind: int, x: Array, groups: np.ndarray[Any, Any]) -> Array:
    group, place = _place(groups)
    rows = all_gather(x, groups.size)[jnp.asarray(groups)[group]]
    return _REDUCTIONS[kind](rows, place)
