"""Makes sure that each queue operation of the user happens exactly as often as written."""

from __future__ import annotations

from lowering.errors import EnqueueError
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    map_sub_jaxprs,
    name_stack,
    sub_jaxprs,
    user_line,
)
from lowering.passes.rewrite import Rewriter
from lowering.streams import dequeue_p, enqueue_p, uses_streams

_RECOMPUTED = "rematted_computation"


def check_queues(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Drops the enqueues of recomputed code, and refuses two enqueues to one queue.

    Before: calls that use queues have been opened.
    After:  each outfeed is enqueued to by at most one equation, in a forward pass.
    Raises: EnqueueError.
    """
    if not uses_streams(closed.jaxpr):
        return closed
    single = _without_recomputed(closed)
    _check_once(single.jaxpr, {})
    return single


def _without_recomputed(closed: ClosedJaxpr) -> ClosedJaxpr:
    rewriter = Rewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        if _RECOMPUTED in name_stack(eqn) and eqn.primitive is enqueue_p:
            continue
        if _RECOMPUTED in name_stack(eqn) and eqn.primitive is dequeue_p:
            raise EnqueueError(
                f"infeed `{eqn.params['queue'].name}` is read inside `jax.checkpoint`: "
                "recomputing would take other elements",
                where=user_line(eqn),
                fix="take the element outside the checkpointed function and pass it in",
            )
        if any(uses_streams(inner) for inner in sub_jaxprs(eqn)):
            rewriter.keep(map_sub_jaxprs(eqn, _without_recomputed))
        else:
            rewriter.keep(eqn)
    return rewriter.closed(closed.consts)


def _check_once(jaxpr: Jaxpr, seen: dict[str, JaxprEqn]) -> None:
    for eqn in jaxpr.eqns:
        if eqn.primitive is enqueue_p:
            name = eqn.params["queue"].name
            if name in seen:
                raise EnqueueError(
                    f"outfeed `{name}` is enqueued to twice in one program, first at "
                    f"{user_line(seen[name]) or 'an unknown line'}",
                    where=user_line(eqn),
                    fix="enqueue both values at once, as a tuple or dict, or use two queues",
                )
            seen[name] = eqn
        for inner in sub_jaxprs(eqn):
            if uses_streams(inner):
                _check_once(inner, seen)
