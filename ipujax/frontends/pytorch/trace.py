"""A trace under way: what tells the code of a module that it is traced, and marks operators."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Generator
from typing import Any

import torch.fx.traceback as fx_traceback

BLOCK = "block"
"""The mark of the block that an operator is in, a tuple that begins with its name; None where a
block has ended and no other has begun."""

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


class Trace:
    """PyTorch traces a module.

    Attributes:
      notes: what somebody keeps until the trace ends, by a name of their own.
    """

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}

    def mark(self, **marks: Any) -> None:
        """Gives the operators that follow these marks (`Node.marks`), besides those of before."""
        # PyTorch has a scope for this alone, which a block without an end cannot use.
        fx_traceback.current_meta["custom"] = {**self.marks, **marks}

    @property
    def marks(self) -> dict[str, Any]:
        """What operators are marked with here and now."""
        return fx_traceback.current_meta.get("custom", {})


def current_trace() -> Trace | None:
    """The trace that the caller is in; None outside."""
    return _current.get()


@contextlib.contextmanager
def tracing() -> Generator[Trace]:
    """The block is a trace; what is marked in it ends with it."""
    trace = Trace()
    token = _current.set(trace)
    try:
        with fx_traceback.preserve_node_meta():
            yield trace
    finally:
        _current.reset(token)
