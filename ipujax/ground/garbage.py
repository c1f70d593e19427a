"""Python's garbage collector during work that makes many objects which stay."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator

_OBJECTS = 200_000  # new ones before the collector looks at them; 700 by default
_MIDDLE = 100  # passes over new objects before one over middle-aged ones; 10 by default
_PASSES = 1000  # over middle-aged objects before one over all; 10 by default
_lock = threading.Lock()
_threads = 0
_before = (0, 0, 0)


@contextlib.contextmanager
def collect_garbage_seldom() -> Generator[None]:
    """Has the collector look at new objects seldom within the block, in all threads.

    Tracing, lowering and modelling make hundreds of thousands of objects, nearly all of which stay
    as long as the result. At its default setting the collector walks over them so often that it
    takes a quarter of the time. A collector that is disabled stays so.
    """
    global _before, _threads
    with _lock:
        if not _threads:
            _before = gc.get_threshold()
            if _before[0]:
                often, middle, rarely = _before
                gc.set_threshold(max(_OBJECTS, often), max(_MIDDLE, middle), max(_PASSES, rarely))
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            if not _threads:
                gc.set_threshold(*_before)
