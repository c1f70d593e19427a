"""Lets replicas take turns at operations that cannot be run for all of them at once."""

from __future__ import annotations

from jax.custom_batching import sequential_vmap

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, bind_equation, can_vectorize, trace_flat
from lowering.passes.rewrite import Anywhere, rewritten


def take_turns(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Gives a batching rule to the operations that JAX has none for, at any depth.

    On one device replicas are a vmapped axis, which primitives from elsewhere, most callbacks of
    the host and ordered effects refuse.

    Before: any jaxpr.
    After:  under vmap such an operation runs once for each replica, in their order.
    """
    if replicas == 1:
        return closed
    unknown = Anywhere(lambda eqn: not can_vectorize(eqn))
    return rewritten(closed, unknown, lambda rewriter, eqn: rewriter.open(eqn, _sequential(eqn)))


def _sequential(eqn: JaxprEqn) -> ClosedJaxpr:
    one_by_one = sequential_vmap(lambda *operands: bind_equation(eqn, operands))
    return trace_flat(one_by_one, [atom.aval for atom in eqn.invars])
