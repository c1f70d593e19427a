"""PopART's own collectives: what replicas make of one another's values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.cross_replica_ops import cross_replica_mean, cross_replica_sum
from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator
from ipujax.operators.replica_groups import reduce_group, scatter_reduced

Array = jax.Array

REPLICAS = "__replicas"
"""The mark of a node that says how many replicas there are; without it there is one group."""

_OPERATOR, _GROUP = "__collectiveOperator", "__collectiveCommGroup"
_CONSECUTIVE, _ORTHOGONAL = 1, 2

_OF_ALL = {0: cross_replica_sum, 1: cross_replica_mean}


@operator("ai.graphcore.ReplicatedAllReduce", folded=False)
def all_reduce(call: Call, x: Array) -> Array:
    """A reduction over the replicas of a group, which all of them get."""
    x, kind, groups = jnp.asarray(x), call.node.marks.get(_OPERATOR, 0), _groups(call)
    if len(groups) == 1 and kind in _OF_ALL:
        return _OF_ALL[kind](x)
    return reduce_group(kind, x, groups)


@operator("ai.graphcore.ReplicatedReduceScatter", folded=False)
def reduce_scatter(call: Call, x: Array) -> Array:
    """The same, flat, dealt out: `[ceil(x.size / replicas of a group)]`; past the end it is 0."""
    kind, groups = call.node.marks.get(_OPERATOR, 0), _groups(call)
    return scatter_reduced(kind, x, groups)


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
