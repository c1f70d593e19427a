"""Gives every while loop one boolean to test, where vmap made it one for each example."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.avals import shape_of
from lowering.control_flow import ControlFlow
from lowering.equations import function_of
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, trace_flat
from lowering.passes.rewrite import Anywhere, rewritten


def scalar_predicates(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrites the while loops whose condition gives an array of booleans, at any depth.

    Before: any jaxpr; vmap leaves a loop that goes on until all examples are done.
    After:  conditions are scalars; the body keeps the values of examples that are done. That is
            what JAX's own lowering of such a loop does.
    """
    return rewritten(
        closed, Anywhere(_is_batched), lambda rewriter, eqn: rewriter.keep(_scalar(eqn))
    )


def _is_batched(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != "while":
        return False
    (predicate,) = ControlFlow.of(eqn).bodies[0].out_avals
    return shape_of(predicate) != ()


def _scalar(eqn: JaxprEqn) -> JaxprEqn:
    """The loop with a scalar condition; its body tests as well, so it takes those constants too."""
    flow = ControlFlow.of(eqn)
    test, body = flow.bodies
    tested, stepped = (eqn.invars[part] for part in flow.constants)
    first, last = len(tested), len(tested) + len(stepped)

    def any_left(*operands: Any) -> Any:
        return jnp.any(function_of(test)(*operands)[0])

    def step(*operands: Any) -> list[Any]:
        consts, carry = operands[:last], operands[last:]
        (going,) = function_of(test)(*consts[:first], *carry)
        after = function_of(body)(*consts[first:], *carry)
        return [_selected(going, new, old) for new, old in zip(after, carry, strict=True)]

    bodies = (
        trace_flat(any_left, test.in_avals),
        trace_flat(step, [*test.in_avals[:first], *body.in_avals]),
    )
    return flow.rebuilt(bodies, (tested, [*tested, *stepped]))


def _selected(going: Any, new: Any, old: Any) -> Any:
    whole = lax.broadcast_in_dim(going, new.shape, tuple(range(going.ndim)))
    return lax.select(whole, new, old)
