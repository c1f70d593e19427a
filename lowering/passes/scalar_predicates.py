"""Gives every while loop one boolean to test, where vmap made it one for each example."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    map_sub_jaxprs,
    run_equations,
    shape_of,
    sub_jaxprs,
    trace_flat,
)
from lowering.passes.rewrite import Rewriter


def scalar_predicates(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrites the while loops whose condition gives an array of booleans, at any depth.

    Before: any jaxpr; vmap leaves a loop that goes on until all examples are done.
    After:  conditions are scalars; the body keeps the values of examples that are done. That is
            what JAX's own lowering of such a loop does.
    """
    return _Scalarizer().closed(closed)


class _Scalarizer:
    def __init__(self) -> None:
        self._affected: dict[int, bool] = {}

    def affected(self, jaxpr: Jaxpr) -> bool:
        key = id(jaxpr)
        if key not in self._affected:
            self._affected[key] = any(
                _is_batched(eqn) or any(self.affected(inner) for inner in sub_jaxprs(eqn))
                for eqn in jaxpr.eqns
            )
        return self._affected[key]

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        if not self.affected(closed.jaxpr):
            return closed
        rewriter = Rewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            inner = eqn
            if any(self.affected(body) for body in sub_jaxprs(eqn)):
                inner = map_sub_jaxprs(eqn, self.closed)
            rewriter.keep(_scalar(inner) if _is_batched(eqn) else inner)
        return rewriter.closed(closed.consts)


def _is_batched(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != "while":
        return False
    (predicate,) = eqn.params["cond_jaxpr"].out_avals
    return shape_of(predicate) != ()


def _scalar(eqn: JaxprEqn) -> JaxprEqn:
    """The loop with a scalar condition; its body tests as well, so it takes those constants too."""
    p = eqn.params
    first, second = p["cond_nconsts"], p["body_nconsts"]
    test, body = p["cond_jaxpr"], p["body_jaxpr"]

    def evaluate(closed: ClosedJaxpr, *operands: Any) -> list[Any]:
        return run_equations(closed.jaxpr, closed.consts, operands)

    def any_left(*operands: Any) -> Any:
        return jnp.any(evaluate(test, *operands)[0])

    def step(*operands: Any) -> list[Any]:
        consts, carry = operands[: first + second], operands[first + second :]
        (going,) = evaluate(test, *consts[:first], *carry)
        stepped = evaluate(body, *consts[first:], *carry)
        return [_selected(going, new, old) for new, old in zip(stepped, carry, strict=True)]

    params = {
        **p,
        "cond_jaxpr": trace_flat(any_left, test.in_avals),
        "body_jaxpr": trace_flat(step, [*test.in_avals[:first], *body.in_avals]),
        "body_nconsts": first + second,
    }
    return eqn.replace(params=params, invars=[*eqn.invars[:first], *eqn.invars])


def _selected(going: Any, new: Any, old: Any) -> Any:
    whole = lax.broadcast_in_dim(going, new.shape, tuple(range(going.ndim)))
    return lax.select(whole, new, old)
