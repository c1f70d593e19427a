"""A test of whether the replicas of a function can compute different values."""

from __future__ import annotations

from lowering import marks
from lowering.jaxprs import ClosedJaxpr, EquationFinder, JaxprEqn, name_stack
from lowering.ops.collective_primitives import COLLECTIVE_PRIMITIVES as COLLECTIVES
from lowering.ops.draws import is_draw
from lowering.ops.host_tables import lookup_p, update_p
from lowering.ops.norm_primitives import correction_p, group_mean_p
from lowering.ops.streams import dequeue_p, enqueue_p

_OF_REPLICAS = frozenset({*COLLECTIVES, dequeue_p, enqueue_p, lookup_p, update_p})
_SHARED_NORMS = frozenset({group_mean_p, correction_p})


def depends_on_replica_count(closed: ClosedJaxpr, norm_group: int = 1) -> bool:
    """Returns whether what a function does depends on how many replicas run it.

    It does for functions with queues, host tables, collectives, the replica's index, or draws from
    the device's seed. Callbacks run in the first replica only, unless a mark says otherwise.

    Args:
      closed: the function, as it was traced.
      norm_group: how many replicas share the statistics of batch normalization.
    """

    def may_differ_between_replicas(eqn: JaxprEqn) -> bool:
        primitive = eqn.primitive
        shares_norms = norm_group > 1 and primitive in _SHARED_NORMS
        if primitive in _OF_REPLICAS or shares_norms or is_draw(eqn):
            return True
        return bool(eqn.effects) and marks.read_marks(name_stack(eqn)).each_replica

    return EquationFinder(may_differ_between_replicas)(closed.jaxpr)
