"""The removal of loops of no iterations."""

from __future__ import annotations

from typing import Any

from jax import lax

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    rewrite_equations,
)
from lowering.ops import ControlFlow, is_control_flow, uses_streams


def drop_idle_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Replaces loops that are known to do nothing by their results, at any depth.

    Before: any jaxpr.
    After:  only loops with queues may have no iterations. JAX would call a function that is
            compiled ahead of time wrongly a second time, if all its ordered effects were in loops
            that never run.
    """
    return rewrite_equations(closed, EquationFinder(_is_idle), _replace_idle_loop)


def _is_idle(eqn: JaxprEqn) -> bool:
    if not is_control_flow(eqn) or uses_streams(eqn):
        return False
    return ControlFlow.view_of_equation(eqn).trips == 0


def _replace_idle_loop(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    """Replaces a loop by its initial variables and by arrays without a row."""
    loop = ControlFlow.view_of_equation(eqn)
    rows: list[Any] = [row.aval for row in eqn.outvars[loop.num_loop_variables :]]

    def initial_variables_and_empty_rows(*operands: Any) -> list[Any]:
        empty = [lax.full(row.shape, 0, row.dtype) for row in rows]
        return [*operands[loop.carried], *empty]

    rewriter.replace_by_function(eqn, initial_variables_and_empty_rows)
