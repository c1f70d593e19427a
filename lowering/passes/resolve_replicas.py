"""Turns collectives into what they do with the number of replicas that the program has."""

from __future__ import annotations

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, trace_flat
from lowering.ops.collectives import PRIMITIVES, REPLICAS, resolved
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def resolve_replicas(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.ops.collectives`, at any depth.

    Before: any jaxpr.
    After:  replicas speak through `lax` collectives over the axis `REPLICAS`, or, when there is
            one replica, not at all.
    Raises: CollectiveError if a group does not divide the replicas.
    """
    axis = (REPLICAS, replicas) if replicas > 1 else None

    def resolve(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        avals = [atom.aval for atom in eqn.invars]
        rewriter.open(eqn, trace_flat(resolved(eqn, replicas), avals, axis))

    return rewritten(closed, Anywhere(lambda eqn: eqn.primitive in PRIMITIVES), resolve)
