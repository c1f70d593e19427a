"""Takes out the loops of no iterations."""

from __future__ import annotations

from typing import Any

from jax import lax

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, trace_flat
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten
from lowering.streams import repeat_p, uses_streams


def drop_idle_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Puts what they give in the place of loops that are known to do nothing, at any depth.

    Before: any jaxpr.
    After:  a loop of no iterations is one that has to do with queues. What is compiled ahead of
            time would be called wrongly by JAX a second time, if all ordered effects of it were in
            loops that never run.
    """
    return rewritten(closed, Anywhere(_is_idle), _open)


def _is_idle(eqn: JaxprEqn) -> bool:
    if eqn.primitive is repeat_p:
        return eqn.params["count"] == 0 and not uses_streams(eqn)
    return eqn.primitive.name == "scan" and eqn.params["length"] == 0 and not uses_streams(eqn)


def _open(rewriter: Rewriter, eqn: JaxprEqn) -> None:
    """The loop variables as they are, and arrays without a row."""
    first = eqn.params["num_consts"]
    carried = eqn.params.get("num_carry", len(eqn.outvars))  # ours has nothing but loop variables
    rows: list[Any] = [row.aval for row in eqn.outvars[carried:]]

    def results(*operands: Any) -> list[Any]:
        empty = [lax.full(row.shape, 0, row.dtype) for row in rows]
        return [*operands[first : first + carried], *empty]

    rewriter.open(eqn, trace_flat(results, [a.aval for a in eqn.invars]))
