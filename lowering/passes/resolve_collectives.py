"""The replacement of collectives, once the number of replicas is known."""

from __future__ import annotations

from lowering.jaxprs import ClosedJaxpr, EquationFinder, rewrite_equations
from lowering.ops import COLLECTIVE_PRIMITIVES, axis_of_replicas, resolve_collective


def resolve_collectives(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.ops.collective_primitives`, at any depth.

    Before: any jaxpr.
    After:  replicas speak through `lax` collectives over the axis `REPLICAS`, or, when there is
            one replica, not at all.
    Raises: CollectiveError if a group does not divide the replicas.
    """
    return rewrite_equations(
        closed,
        EquationFinder(lambda eqn: eqn.primitive in COLLECTIVE_PRIMITIVES),
        lambda rewriter, eqn: rewriter.replace_by_function(
            eqn, resolve_collective(eqn, replicas), axis_of_replicas(replicas)
        ),
    )
