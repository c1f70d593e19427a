"""Turns collectives into what they do with the number of replicas that the program has."""

from __future__ import annotations

from lowering.jaxpr import ClosedJaxpr
from lowering.ops.collectives import PRIMITIVES, axis_of, resolved
from lowering.passes.rewrite import Anywhere, rewritten


def resolve_replicas(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.ops.collectives`, at any depth.

    Before: any jaxpr.
    After:  replicas speak through `lax` collectives over the axis `REPLICAS`, or, when there is
            one replica, not at all.
    Raises: CollectiveError if a group does not divide the replicas.
    """
    return rewritten(
        closed,
        Anywhere(lambda eqn: eqn.primitive in PRIMITIVES),
        lambda rewriter, eqn: rewriter.trace(eqn, resolved(eqn, replicas), axis_of(replicas)),
    )
