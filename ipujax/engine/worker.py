"""A thread with a list of things to do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Worker:
    """Does its tasks one after the other, in a thread that does not keep a process from ending.

    A data set may block for ever; the threads of `concurrent.futures` would be waited for.
    """

    def __init__(self, name: str):
        self._tasks: queue.SimpleQueue[Callable[[], None] | None]
        self._tasks = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Has a function called after the earlier ones."""
        future: Future[Any] = Future()

        def task() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def stop(self) -> None:
        """Ends the thread after what has been submitted."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
