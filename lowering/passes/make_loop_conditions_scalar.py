"""The conversion of while loops, whose conditions vmap has batched, to scalar conditions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    function_of_jaxpr,
    rewrite_equations,
    shape_of,
    trace_flat,
    typed_jax,
)
from lowering.ops import ControlFlow


def make_loop_conditions_scalar(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrites the while loops whose condition returns an array, at any depth.

    Before: any jaxpr; vmap leaves a loop that goes on until all examples are done.
    After:  conditions are scalars; the body keeps the values of examples that are done. That is
            what JAX's own lowering of such a loop does.
    """
    return rewrite_equations(
        closed,
        EquationFinder(_is_batched),
        lambda rewriter, eqn: rewriter.keep_equation(_make_condition_scalar(eqn)),
    )


def _is_batched(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != "while":
        return False
    (predicate,) = ControlFlow.view_of_equation(eqn).bodies[0].out_avals
    return shape_of(predicate) != ()


def _make_condition_scalar(eqn: JaxprEqn) -> JaxprEqn:
    """Returns the loop with a scalar condition; its body gets the condition's constants, too."""
    flow = ControlFlow.view_of_equation(eqn)
    test, body = flow.bodies
    test_constants, body_constants = (eqn.invars[part] for part in flow.constants)
    num_test_constants, num_constants = (
        len(test_constants),
        len(test_constants) + len(body_constants),
    )

    def is_any_example_left(*operands: Any) -> Any:
        return jnp.any(function_of_jaxpr(test)(*operands)[0])

    def run_body_for_examples_left(*operands: Any) -> list[Any]:
        consts, carry = operands[:num_constants], operands[num_constants:]
        (is_left,) = function_of_jaxpr(test)(*consts[:num_test_constants], *carry)
        new_carry = function_of_jaxpr(body)(*consts[num_test_constants:], *carry)
        return [
            _select_by_example(is_left, new, old) for new, old in zip(new_carry, carry, strict=True)
        ]

    bodies = (
        trace_flat(is_any_example_left, test.in_avals),
        trace_flat(
            run_body_for_examples_left, [*test.in_avals[:num_test_constants], *body.in_avals]
        ),
    )
    return flow.replace_bodies_and_constants(
        bodies, (test_constants, [*test_constants, *body_constants])
    )


def _select_by_example(is_left: Any, new: Any, old: Any) -> Any:
    mask = typed_jax.broadcast_in_dim(is_left, new.shape, tuple(range(is_left.ndim)))
    return lax.select(mask, new, old)
