"""Opens the calls (jit, remat, custom derivatives) that hold marks, queues or host operations."""

from __future__ import annotations

from collections.abc import Callable

from lowering import marks
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    call_body,
    map_sub_jaxprs,
    name_stack,
    sub_jaxprs,
)
from lowering.passes.rewrite import Rewriter
from lowering.streams import uses_streams


def inline_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Brings every equation that the placement must see to the top level of its body.

    Before: any jaxpr.
    After:  no call contains a mark, a queue operation or a host operation, except outlined
            functions that were asked to stay on one IPU; calls without them stay closed.
    """
    return _inlined(closed, _SplitCalls())


class _SplitCalls:
    """Which jaxprs the placement must look into; remembered, since bodies are shared."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def __call__(self, jaxpr: Jaxpr) -> bool:
        key = id(jaxpr)
        if key not in self._known:
            self._known[key] = uses_streams(jaxpr) or any(
                _splits(name_stack(eqn)) or any(self(inner) for inner in sub_jaxprs(eqn))
                for eqn in jaxpr.eqns
            )
        return self._known[key]


def _splits(stack: str) -> bool:
    found = marks.read(stack)
    return found.shard is not None or found.outside is not None


def _inlined(closed: ClosedJaxpr, splits: Callable[[Jaxpr], bool]) -> ClosedJaxpr:
    if not splits(closed.jaxpr):
        return closed
    rewriter = Rewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        body = call_body(eqn)
        if not any(splits(inner) for inner in sub_jaxprs(eqn)):
            rewriter.keep(eqn)
        elif body is None:
            rewriter.keep(map_sub_jaxprs(eqn, lambda inner: _inlined(inner, splits)))
        elif marks.read(name_stack(eqn)).unit is not None and not uses_streams(body):
            rewriter.keep(eqn)
        else:
            rewriter.open(eqn, _inlined(body, splits))
    return rewriter.closed(closed.consts)
