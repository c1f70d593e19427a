"""Whether the replicas of a function can differ, or all would do the same."""

from __future__ import annotations

from lowering import marks
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, name_stack
from lowering.ops.collectives import PRIMITIVES as COLLECTIVES
from lowering.ops.draws import is_draw
from lowering.ops.host_tables import lookup_p, update_p
from lowering.ops.norms import correction_p, group_mean_p
from lowering.ops.streams import dequeue_p, enqueue_p
from lowering.passes.rewrite import Anywhere

_OF_REPLICAS = frozenset({*COLLECTIVES, dequeue_p, enqueue_p, lookup_p, update_p})
_SHARED_NORMS = frozenset({group_mean_p, correction_p})


def replicas_may_differ(closed: ClosedJaxpr, norm_group: int = 1) -> bool:
    """Whether it matters how many replicas of a function run.

    It does for queues, tables of the host, collectives and the number of a replica, and for draws
    from the device's seed. Callbacks are the first replica's, but for those that are marked.

    Args:
      closed: the function, as it was traced.
      norm_group: how many replicas share the statistics of batch normalization.
    """

    def differs(eqn: JaxprEqn) -> bool:
        primitive = eqn.primitive
        shares_norms = norm_group > 1 and primitive in _SHARED_NORMS
        if primitive in _OF_REPLICAS or shares_norms or is_draw(eqn):
            return True
        return bool(eqn.effects) and marks.read(name_stack(eqn)).each_replica

    return Anywhere(differs)(closed.jaxpr)
