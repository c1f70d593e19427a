"""The replacement of collectives, once the number of replicas is known."""

from __future__ import annotations

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    parameters_key,
    rewrite_equations,
    trace_flat,
)
from lowering.ops import COLLECTIVE_PRIMITIVES, axis_of_replicas, resolve_collective


def resolve_collectives(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.ops.collective_primitives`, at any depth.

    Before: any jaxpr.
    After:  replicas speak through `lax` collectives over the axis `REPLICAS`, or, when there is
            one replica, not at all.
    Raises: CollectiveError if a group does not divide the replicas.
    """
    bodies: dict[object, ClosedJaxpr] = {}

    def resolve(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        avals = [atom.aval for atom in eqn.invars]
        key = eqn.primitive, parameters_key(eqn), eqn.ctx, *avals
        if key not in bodies:
            axis = axis_of_replicas(replicas)
            bodies[key] = trace_flat(resolve_collective(eqn, replicas), avals, axis)
        rewriter.replace_by_jaxpr(eqn, bodies[key])

    is_collective = EquationFinder(lambda eqn: eqn.primitive in COLLECTIVE_PRIMITIVES)
    return rewrite_equations(closed, is_collective, resolve)
