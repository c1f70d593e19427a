"""Marks of stages: brought to the top level of a function, so that it can be cut at them."""

from __future__ import annotations

from lowering import marks
from lowering.equations import walk
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, call_body, name_stack, sub_jaxprs
from lowering.passes.rewrite import JITTED, Anywhere, Rewriter


def marked_stages(eqn: JaxprEqn) -> set[int]:
    """The stages that the marks of an equation and of all its bodies name."""
    inner = (e for body in sub_jaxprs(eqn) for e in walk(body))
    return {stage for e in (eqn, *inner) if (stage := _stage(e)) is not None}


def with_marks_on_top(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The function with each `jit` opened that has marks of stages inside."""
    return _opened(closed, Anywhere(lambda eqn: _stage(eqn) is not None))


def _opened(closed: ClosedJaxpr, marked: Anywhere) -> ClosedJaxpr:
    if not marked(closed.jaxpr):
        return closed
    rewriter = Rewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        body = call_body(eqn) if eqn.primitive.name in JITTED else None
        if body is None or not marked.inside(eqn):
            rewriter.keep(eqn)
        else:
            rewriter.open(eqn, _opened(body, marked))
    return rewriter.closed(closed.consts)


def _stage(eqn: JaxprEqn) -> int | None:
    return marks.read(name_stack(eqn)).stage
