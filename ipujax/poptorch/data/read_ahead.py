"""A thread that reads an iterator ahead of who uses it."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ipujax.host.worker import Worker


class Ring:
    """As many places for elements as a reader may be ahead, and the end of what it reads.

    Args:
      capacity: how many places there are.
      is_started: whether more than the first element is asked for.
    """

    def __init__(self, capacity: int, *, is_started: bool):
        self._error: BaseException | None = None
        self._capacity = capacity
        self._is_started = is_started
        self._is_cancelled = False
        self._is_over = False
        self._elements: deque[Any] = deque()
        self._changed = threading.Condition()

    # The name that the original's buffer has, at which programs look that measure reading ahead.
    @property
    def indices_mem(self) -> list[bool]:
        """Of each place, whether it holds an element."""
        count = len(self._elements)
        return [place < count for place in range(self._capacity)]

    @property
    def is_exhausted(self) -> bool:
        """Whether all elements have been taken, and there was no error."""
        with self._changed:
            return self._is_over and not self._elements and self._error is None

    def fill(self, elements: Iterable[Any]) -> None:
        """Reads to the end, waiting for places; the work of the thread."""
        try:
            for element in elements:
                if not self._put(element):
                    break
        except BaseException as error:  # who takes the elements is to see it
            self.fail(error)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Has an error be the end."""
        with self._changed:
            self._error = error
            self._is_over = True
            self._changed.notify_all()

    def take_error(self) -> BaseException | None:
        """What the reader raised; who takes elements comes to it after them.

        It is given away: its traceback holds the ring, and all that the reader needed.
        """
        error, self._error = self._error, None
        return error

    def _put(self, element: Any) -> bool:
        """Takes an element, and waits until another is wanted; False if none ever is."""
        with self._changed:
            self._elements.append(element)
            self._changed.notify_all()
            self._changed.wait_for(self._has_news)
            return not self._is_cancelled

    def _has_news(self) -> bool:
        has_place = self._is_started and len(self._elements) < self._capacity
        return has_place or self._is_cancelled

    def start(self) -> None:
        """Asks for what comes after the first element."""
        with self._changed:
            self._is_started = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """Asks for no more."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def wait_for_end(self) -> None:
        """Waits until the reader has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over)

    def wait_for_element(self) -> bool:
        """Waits for an element; False if there is none any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._elements)
            return bool(self._elements)

    def take(self) -> Any:
        """The next element, which must be there."""
        with self._changed:
            element = self._elements.popleft()
            self._changed.notify_all()
            return element


class ReadAhead:
    """A thread that fills one ring after the other.

    Args:
      capacity: how many elements it may be ahead.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._thread = Worker("poptorch.AsynchronousDataAccessor")
        self._data_buffers: Ring | None = None
        _living.add(self)

    def begin(self, read: Callable[[], Iterable[Any]], *, is_started: bool) -> Ring:
        """Has the thread read anew, into a ring of its own.

        Args:
          read: gives what to read; called here, so that the thread does not hold what it needs.
          is_started: whether to read on after the first element, before anybody asks for it.
        """
        if self._data_buffers is not None:
            self._data_buffers.cancel()
            self._data_buffers.wait_for_end()
        ring = self._data_buffers = Ring(self._capacity, is_started=is_started)
        try:
            self._thread.submit(ring.fill, read())
        except BaseException as error:  # as if the thread had read it
            ring.fail(error)
        return ring

    def stop(self) -> None:
        """Ends the thread after the element that it is at."""
        if self._data_buffers is not None:
            self._data_buffers.cancel()
        self._thread.stop()


_living: weakref.WeakSet[ReadAhead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for reader in list(_living):
        reader.stop()
