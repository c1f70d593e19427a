"""Opens the calls (jit, remat, custom derivatives) that hold marks, queues or host operations."""

from __future__ import annotations

from lowering import marks
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, call_body, map_sub_jaxprs, name_stack
from lowering.ops.streams import uses_streams
from lowering.ops.tasks import is_task
from lowering.ops.user_ops import name_on_host
from lowering.passes.rewrite import Anywhere, Rewriter


def inline_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Brings every equation that the placement must see to the top level of its body.

    Before: any jaxpr.
    After:  no call contains a mark, a queue operation or a host operation, except outlined
            functions that were asked to stay on one IPU; calls without them stay closed.
    """
    return _inlined(closed, Anywhere(_is_seen))


def _is_seen(eqn: JaxprEqn) -> bool:
    """Whether the placement must see the equation by itself."""
    marked = marks.read(name_stack(eqn))
    is_marked = marked.shard is not None or marked.outside is not None
    return is_marked or uses_streams(eqn) or name_on_host(eqn) is not None


def _inlined(closed: ClosedJaxpr, seen: Anywhere) -> ClosedJaxpr:
    if not seen(closed.jaxpr):
        return closed
    rewriter = Rewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        body = call_body(eqn)
        if not seen.inside(eqn):
            rewriter.keep(eqn)
        elif body is None or is_task(eqn):
            rewriter.keep(map_sub_jaxprs(eqn, lambda inner: _inlined(inner, seen)))
        elif marks.read(name_stack(eqn)).unit is not None and not uses_streams(body):
            rewriter.keep(eqn)
        else:
            rewriter.open(eqn, _inlined(body, seen))
    return rewriter.closed(closed.consts)
