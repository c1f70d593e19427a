"""The trace in progress, which module code can query and annotate."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Generator
from typing import Any

import torch.fx.traceback as fx_traceback

BLOCK = "block"
"""The mark of an operator's block, a tuple that begins with the block's name; None between
blocks."""

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


class Trace:
    """A trace of a module by PyTorch that is in progress.

    Attributes:
      notes: values that callers keep until the trace ends, by names of their own.
    """

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}

    def mark(self, **marks: object) -> None:
        """Adds marks (`Node.marks`) to all operators that follow."""
        # PyTorch offers only a context manager for this, which a block without an end cannot use.
        fx_traceback.current_meta["custom"] = {**self.current_marks, **marks}

    @property
    def current_marks(self) -> dict[str, Any]:
        """The marks that operators get at this point of the trace."""
        return fx_traceback.current_meta.get("custom", {})


def current_trace() -> Trace | None:
    """Returns the trace that the caller runs in, or None."""
    return _current.get()


@contextlib.contextmanager
def tracing() -> Generator[Trace]:
    """Starts a trace for the block; its marks end with it."""
    trace = Trace()
    token = _current.set(trace)
    try:
        with fx_traceback.preserve_node_meta():
            yield trace
    finally:
        _current.reset(token)
