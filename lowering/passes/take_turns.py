"""Lets replicas take turns at operations that cannot be run for all of them at once."""

from __future__ import annotations

from jax.custom_batching import sequential_vmap

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, batching, bind_equation, call_body
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def take_turns(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Gives a batching rule to the operations that JAX has none for, at any depth.

    On one device replicas are a vmapped axis, which primitives from elsewhere, most callbacks of
    the host and ordered effects refuse.

    Before: any jaxpr.
    After:  under vmap such an operation runs once for each replica, in their order.
    """
    if replicas == 1:
        return closed
    return rewritten(closed, Anywhere(lambda eqn: not _can_vectorize(eqn)), _one_by_one)


def _one_by_one(rewriter: Rewriter, eqn: JaxprEqn) -> None:
    rewriter.trace(eqn, sequential_vmap(lambda *operands: bind_equation(eqn, operands)))


def _can_vectorize(eqn: JaxprEqn) -> bool:
    """Whether vmap knows what to do with an equation, its bodies left aside."""
    name, params = eqn.primitive.name, eqn.params
    if name == "pure_callback":
        return params["vmap_method"] is not None
    if name == "io_callback":
        return not params["ordered"]
    has_rule = eqn.primitive in batching.fancy_primitive_batchers  # the table of all rules
    return has_rule or eqn.primitive.call_primitive or call_body(eqn) is not None
