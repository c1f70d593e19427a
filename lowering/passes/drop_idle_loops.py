"""Takes out the loops of no iterations."""

from __future__ import annotations

from typing import Any

from jax import lax

from lowering.control_flow import ControlFlow, is_control_flow
from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.ops.streams import uses_streams
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def drop_idle_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Puts what they give in the place of loops that are known to do nothing, at any depth.

    Before: any jaxpr.
    After:  a loop of no iterations is one that has to do with queues. What is compiled ahead of
            time would be called wrongly by JAX a second time, if all ordered effects of it were in
            loops that never run.
    """
    return rewritten(closed, Anywhere(_is_idle), _open)


def _is_idle(eqn: JaxprEqn) -> bool:
    if not is_control_flow(eqn) or uses_streams(eqn):
        return False
    return ControlFlow.of(eqn).trips == 0


def _open(rewriter: Rewriter, eqn: JaxprEqn) -> None:
    """The loop variables as they are, and arrays without a row."""
    loop = ControlFlow.of(eqn)
    rows: list[Any] = [row.aval for row in eqn.outvars[loop.variables :]]

    def results(*operands: Any) -> list[Any]:
        empty = [lax.full(row.shape, 0, row.dtype) for row in rows]
        return [*operands[loop.carried], *empty]

    rewriter.trace(eqn, results)
