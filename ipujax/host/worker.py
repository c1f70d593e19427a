"""A thread with a list of things to do."""

from __future__ import annotations

import atexit
import ctypes
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

import jax

# A process that ends waits so long for threads that may be inside JAX (nobody can see it where C++
# has been called directly), and so long for those that are.
GRACE_SECONDS = 1.0
JAX_SECONDS = 30.0

# What a thread may have configured for itself alone, and changes what JAX computes or refuses.
SETTINGS = (
    "enable_x64",
    "default_device",
    "default_matmul_precision",
    "default_prng_impl",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "threefry_partitionable",
    "debug_nans",
    "debug_infs",
)

P = ParamSpec("P")
T = TypeVar("T")

_living: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """Does its tasks one after the other, in a thread that does not keep a process from ending.

    A data set may block for ever; the threads of `concurrent.futures` would be waited for. JAX is
    configured in it as in the thread that makes it.

    Attributes:
      ends: whether the process is about to end, so that long tasks should as well.
    """

    def __init__(self, name: str):
        self._tasks: queue.SimpleQueue[Callable[[], None] | None]
        self._tasks = queue.SimpleQueue()
        self._configured = _configuration()
        self.ends = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        _living.add(self)
        self.thread.start()

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has a function called after the earlier ones."""
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def stop(self) -> None:
        """Ends the thread after what has been submitted."""
        self._tasks.put(None)

    def _run(self) -> None:
        for name, value in _configuration().items():
            if value != self._configured[name]:
                getattr(jax, name)(self._configured[name]).__enter__()
        while not self.ends and (task := self._tasks.get()) is not None:
            task()
            del task  # what it holds may be waiting to be freed

    def end(self) -> None:
        """Ends the thread: at its next step in Python, whatever it is at."""
        self.ends = True
        self.stop()
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))

    def is_in_jax(self) -> bool:
        """Whether the thread is at something that one of JAX's Python functions has called."""
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - documented
        frame = frames.get(self.thread.ident or 0)
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
                return True
            frame = frame.f_back
        return False


def _configuration() -> dict[str, Any]:
    """What holds for this thread."""
    return {name: getattr(jax.config, f"jax_{name}") for name in SETTINGS}


@atexit.register
def _end_all() -> None:
    """Ends all threads before the interpreter does.

    It stops threads where they next take its lock, which aborts the process if C++ code has
    called them, as JAX's has. One that waits for something else ends with the process.
    """
    workers = [worker for worker in _living if worker.thread.is_alive()]
    for worker in workers:
        worker.end()
    start = time.monotonic()
    for worker in workers:
        worker.thread.join(max(0.0, start + GRACE_SECONDS - time.monotonic()))
        while worker.is_in_jax() and time.monotonic() < start + JAX_SECONDS:
            worker.thread.join(0.05)
