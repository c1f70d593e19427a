"""The state while `ipu.compile` traces a user's function: a stack of frames per thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

from ipujax.host.queues import Queue

_local = threading.local()


class Frame:
    """One function being traced.

    Args:
      instances: how many processes will run it together.

    Attributes:
      instances: how many processes will run the function together.
      enqueues: each outfeed with the user's line that enqueued to it.
      loops: the trip counts of the repeating loops around what is traced now, the innermost last;
        None for one that is known at run time only.
      scopes: contexts that end with the trace.
    """

    def __init__(self, instances: int = 1) -> None:
        self.instances = instances
        self.enqueues: list[tuple[Queue, str]] = []
        self.loops: list[int | None] = []
        self.scopes = contextlib.ExitStack()

    def enqueues_to(self, queue: Queue) -> bool:
        """Returns whether the function has enqueued to this queue so far."""
        return any(queue is enqueued_queue for enqueued_queue, _ in self.enqueues)


def current_trace_frame() -> Frame | None:
    """Returns the innermost function being traced in this thread, or None."""
    frames = getattr(_local, "frames", None)
    return frames[-1] if frames else None


def note_enqueue(queue: Queue, line: str) -> None:
    """Remembers that the function being traced enqueues to a queue."""
    frame = current_trace_frame()
    if frame is not None:
        frame.enqueues.append((queue, line))


@contextlib.contextmanager
def trace_loop_body(count: int | None) -> Generator[None]:
    """Marks what is traced in this block as the body of a loop of `count` iterations, or None."""
    enclosing_frame = current_trace_frame() or Frame()  # outside a trace, nobody reads it
    enclosing_frame.loops.append(count)
    try:
        yield
    finally:
        enclosing_frame.loops.pop()


@contextlib.contextmanager
def open_trace_frame(instances: int) -> Generator[Frame]:
    """Opens the frame of one trace and closes it with its scopes."""
    if not hasattr(_local, "frames"):
        _local.frames = []
    new = Frame(instances)
    _local.frames.append(new)
    try:
        with new.scopes:
            yield new
    finally:
        _local.frames.pop()
