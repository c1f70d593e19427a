"""Turns collectives into what they do with the number of replicas that the program has."""

from __future__ import annotations

from lowering.collectives import PRIMITIVES, REPLICAS, resolved
from lowering.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, map_sub_jaxprs, sub_jaxprs, trace_flat
from lowering.passes.rewrite import Rewriter


def resolve_replicas(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.collectives`, at any depth.

    Before: any jaxpr.
    After:  replicas speak through `lax` collectives over the axis `REPLICAS`, or, when there is
            one replica, not at all.
    Raises: CollectiveError if a group does not divide the replicas.
    """
    return _Resolver(replicas).closed(closed)


class _Resolver:
    def __init__(self, replicas: int):
        self.replicas = replicas
        self._affected: dict[int, bool] = {}

    def affected(self, jaxpr: Jaxpr) -> bool:
        key = id(jaxpr)
        if key not in self._affected:
            self._affected[key] = any(
                eqn.primitive in PRIMITIVES or any(self.affected(j) for j in sub_jaxprs(eqn))
                for eqn in jaxpr.eqns
            )
        return self._affected[key]

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        if not self.affected(closed.jaxpr):
            return closed
        rewriter = Rewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            if eqn.primitive in PRIMITIVES:
                rewriter.open(eqn, self.meaning(eqn))
            elif any(self.affected(inner) for inner in sub_jaxprs(eqn)):
                rewriter.keep(map_sub_jaxprs(eqn, self.closed))
            else:
                rewriter.keep(eqn)
        return rewriter.closed(closed.consts)

    def meaning(self, eqn: JaxprEqn) -> ClosedJaxpr:
        axis = (REPLICAS, self.replicas) if self.replicas > 1 else None
        avals = [atom.aval for atom in eqn.invars]
        return trace_flat(resolved(eqn, self.replicas), avals, axis)
