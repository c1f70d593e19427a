"""The opening of calls (jit, remat, custom derivatives) with marks, queues, host operations."""

from __future__ import annotations

from lowering import marks
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    body_of_call,
    map_sub_jaxprs,
    name_stack,
)
from lowering.ops import is_task, name_of_host_operation, uses_streams


def inline_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Brings every equation that the placement must see to the top level of its body.

    Before: any jaxpr.
    After:  no call contains a mark, a queue operation or a host operation, except outlined
            functions that were asked to stay on one IPU; calls without them stay closed.
    """
    must_be_on_top = EquationFinder(_must_be_visible_to_placement)

    def hides_equations(eqn: JaxprEqn) -> bool:
        is_call = body_of_call(eqn) is not None and not is_task(eqn)
        return is_call and must_be_on_top.occurs_inside(eqn)

    if not EquationFinder(hides_equations)(closed.jaxpr):
        return closed
    return _inline_calls_with(closed, must_be_on_top)


def _must_be_visible_to_placement(eqn: JaxprEqn) -> bool:
    """Returns whether the placement must see an equation by itself."""
    eqn_marks = marks.read_marks(name_stack(eqn))
    is_marked = eqn_marks.shard is not None or eqn_marks.outside is not None
    return is_marked or uses_streams(eqn) or name_of_host_operation(eqn) is not None


def _inline_calls_with(closed: ClosedJaxpr, must_be_on_top: EquationFinder) -> ClosedJaxpr:
    if not must_be_on_top(closed.jaxpr):
        return closed
    rewriter = EquationRewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        body = body_of_call(eqn)
        if not must_be_on_top.occurs_inside(eqn):
            rewriter.keep_equation(eqn)
        elif body is None or is_task(eqn):
            rewriter.keep_equation(
                map_sub_jaxprs(eqn, lambda inner: _inline_calls_with(inner, must_be_on_top))
            )
        elif marks.read_marks(name_stack(eqn)).unit is not None and not uses_streams(body):
            rewriter.keep_equation(eqn)
        else:
            rewriter.replace_by_jaxpr(eqn, _inline_calls_with(body, must_be_on_top))
    return rewriter.build_rewritten_jaxpr(closed.consts)
