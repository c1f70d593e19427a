"""The marks of stages, brought to the top level of a function so that it can be cut at them."""

from __future__ import annotations

from lowering import marks
from lowering.jaxprs import (
    JITTED,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    body_of_call,
    name_stack,
    sub_jaxprs,
    walk_equations,
)


def stages_in_marks(eqn: JaxprEqn) -> set[int]:
    """Returns the stages that the marks of an equation and of its bodies name."""
    nested_eqns = (e for body in sub_jaxprs(eqn) for e in walk_equations(body))
    return {stage for e in (eqn, *nested_eqns) if (stage := _stage_in_mark(e)) is not None}


def inline_jits_with_stage_marks(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the function with each `jit` opened that has marks of stages inside."""
    return _inline_marked_jits(closed, EquationFinder(lambda eqn: _stage_in_mark(eqn) is not None))


def _inline_marked_jits(closed: ClosedJaxpr, has_stage_mark: EquationFinder) -> ClosedJaxpr:
    if not has_stage_mark(closed.jaxpr):
        return closed
    rewriter = EquationRewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        body = body_of_call(eqn) if eqn.primitive.name in JITTED else None
        if body is None or not has_stage_mark.occurs_inside(eqn):
            rewriter.keep_equation(eqn)
        else:
            rewriter.replace_by_jaxpr(eqn, _inline_marked_jits(body, has_stage_mark))
    return rewriter.build_rewritten_jaxpr(closed.consts)


def _stage_in_mark(eqn: JaxprEqn) -> int | None:
    return marks.read_marks(name_stack(eqn)).stage
