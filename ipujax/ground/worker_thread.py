"""A thread that runs tasks one after the other, for data sets and callbacks."""

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
from typing import ParamSpec, TypeVar

import jax

from ipujax.ground.value_types import Keywords

# The times that an ending process waits for threads that may be inside JAX (direct calls of C++
# cannot be seen), and for those that are.
GRACE_SECONDS = 1.0
JAX_SECONDS = 30.0

# JAX's settings that may differ between threads, and change what JAX computes or refuses.
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
    """A thread that runs tasks one after the other, and does not keep a process from ending.

    A data set may block for ever; the threads of `concurrent.futures` would be waited for. JAX is
    configured in it as in the thread that makes it.

    Attributes:
      ends: whether the process is about to end, so that long tasks should as well.
    """

    def __init__(self, name: str):
        self._tasks: queue.SimpleQueue[Callable[[], None] | None]
        self._tasks = queue.SimpleQueue()
        self._configured = _read_jax_settings()
        self.ends = False
        self.thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        _living.add(self)
        self.thread.start()

    def submit_task(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call of a function behind the earlier ones; returns its future."""
        future: Future[T] = Future()

        def run_function() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(run_function)
        return future

    def stop_after_tasks(self) -> None:
        """Ends the thread after the submitted tasks."""
        self._tasks.put(None)

    def _run_tasks(self) -> None:
        for name, value in _read_jax_settings().items():
            if value != self._configured[name]:
                getattr(jax, name)(self._configured[name]).__enter__()
        while not self.ends and (task := self._tasks.get()) is not None:
            task()
            del task  # it may hold large objects

    def interrupt_thread(self) -> None:
        """Ends the thread at its next step in Python, within any task."""
        self.ends = True
        self.stop_after_tasks()
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))

    def is_in_jax(self) -> bool:
        """Returns whether the thread is inside a call of one of JAX's Python functions."""
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - documented
        frame = frames.get(self.thread.ident or 0)
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
                return True
            frame = frame.f_back
        return False


def _read_jax_settings() -> Keywords:
    """Returns JAX's settings for this thread."""
    return {name: getattr(jax.config, f"jax_{name}") for name in SETTINGS}


@atexit.register
def _end_all_workers() -> None:
    """Ends all threads before the interpreter ends.

    The interpreter stops threads when they next take its lock, which aborts the process if they
    were called by C++ code, such as JAX's. One that waits ends with the process.
    """
    workers = [worker for worker in _living if worker.thread.is_alive()]
    for worker in workers:
        worker.interrupt_thread()
    start = time.monotonic()
    for worker in workers:
        worker.thread.join(max(0.0, start + GRACE_SECONDS - time.monotonic()))
        while worker.is_in_jax() and time.monotonic() < start + JAX_SECONDS:
            worker.thread.join(0.05)
