"""PopART's own collectives over replicas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator
from ipujax.operators import cross_replica_mean, cross_replica_sum, reduce_group, scatter_reduced

Array = jax.Array

REPLICAS = "__replicas"
"""The mark of a node that holds the number of replicas; without it there is one group."""

_OPERATOR, _GROUP = "__collectiveOperator", "__collectiveCommGroup"
_CONSECUTIVE, _ORTHOGONAL = 1, 2

_REDUCTIONS_OVER_ALL = {0: cross_replica_sum, 1: cross_replica_mean}


@operator("ai.graphcore.ReplicatedAllReduce", folded=False, takes_call=True)
def all_reduce(call: Call, x: Array) -> Array:
    """Reduces over the replicas of a group; every replica gets the result."""
    x, reduction, groups = jnp.asarray(x), call.node.marks.get(_OPERATOR, 0), _replica_groups(call)
    if len(groups) == 1 and reduction in _REDUCTIONS_OVER_ALL:
        return _REDUCTIONS_OVER_ALL[reduction](x)
    return reduce_group(reduction, x, groups)


@operator("ai.graphcore.ReplicatedReduceScatter", folded=False, takes_call=True)
def reduce_scatter(call: Call, x: Array) -> Array:
    """Reduces over a group; each replica gets `[ceil(x.size / group size)]`, zero-padded."""
    reduction, groups = call.node.marks.get(_OPERATOR, 0), _replica_groups(call)
    return scatter_reduced(reduction, x, groups)


def _replica_groups(call: Call) -> np.ndarray:
    """Returns the numbers of the replicas in each group, [groups, replicas of a group]."""
    group_kind, size = call.node.marks.get(_GROUP, (0, 0))
    count = call.node.marks.get(REPLICAS, size or 1)
    numbers = np.arange(count)
    if group_kind not in (_CONSECUTIVE, _ORTHOGONAL):
        return numbers.reshape(1, -1) if group_kind == 0 else numbers.reshape(-1, 1)
    if not size or count % size:
        raise check.value_error(
            f"a collective over groups of {size} replicas, of which there are {count}",
            f"use a divisor of {count}",
        )
    consecutive = group_kind == _CONSECUTIVE
    return numbers.reshape(-1, size) if consecutive else numbers.reshape(size, -1).T
