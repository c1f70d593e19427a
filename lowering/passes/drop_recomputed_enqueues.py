"""The check that each queue operation of the user happens exactly as often as written."""

from __future__ import annotations

from lowering.ground import EnqueueError
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    name_stack,
    rewrite_equations,
    user_line,
    walk_equations,
)
from lowering.ops import dequeue_p, enqueue_p, uses_streams

_RECOMPUTED = "rematted_computation"


def drop_recomputed_enqueues(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Drops the enqueues of recomputed code, and refuses two enqueues to one queue.

    Before: calls that use queues have been opened.
    After:  each outfeed is enqueued to by at most one equation, in a forward pass.
    Raises: EnqueueError.
    """
    if not uses_streams(closed.jaxpr):
        return closed
    single = rewrite_equations(closed, EquationFinder(_is_recomputed), _drop_recomputed_enqueue)
    _refuse_second_enqueue(single.jaxpr)
    return single


def _is_recomputed(eqn: JaxprEqn) -> bool:
    return eqn.primitive in (dequeue_p, enqueue_p) and _RECOMPUTED in name_stack(eqn)


def _drop_recomputed_enqueue(_: EquationRewriter, eqn: JaxprEqn) -> None:
    """Drops an enqueue, since its forward twin has sent the value; refuses a dequeue."""
    if eqn.primitive is dequeue_p:
        raise EnqueueError(
            f"infeed `{eqn.params['queue'].name}` is read inside `jax.checkpoint`: recomputing "
            "would take other elements",
            where=user_line(eqn),
            fix="take the element outside the checkpointed function and pass it in",
        )


def _refuse_second_enqueue(jaxpr: Jaxpr) -> None:
    first_enqueue_of_queue: dict[str, JaxprEqn] = {}
    for eqn in walk_equations(jaxpr, uses_streams):
        if eqn.primitive is not enqueue_p:
            continue
        name = eqn.params["queue"].name
        if name in first_enqueue_of_queue:
            raise EnqueueError(
                f"outfeed `{name}` is enqueued to twice in one program, first at "
                f"{user_line(first_enqueue_of_queue[name]) or 'an unknown line'}",
                where=user_line(eqn),
                fix="enqueue both values at once, as a tuple or dict, or use two queues",
            )
        first_enqueue_of_queue[name] = eqn
