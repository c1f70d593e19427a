"""A thread that reads an iterable ahead of its consumer."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable

from ipujax.ground import PyTree, Worker


class Ring:
    """The buffer of elements between a reading thread and its consumer.

    Args:
      capacity: how many elements the buffer holds.
      is_started: whether the thread may read more than the first element.
    """

    def __init__(self, capacity: int, *, is_started: bool):
        self._error: BaseException | None = None
        self._capacity = capacity
        self._is_started = is_started
        self._is_cancelled = False
        self._is_over = False
        self._elements: deque[object] = deque()
        self._changed = threading.Condition()

    # The name that the original's buffer has, at which programs look that measure reading ahead.
    @property
    def indices_mem(self) -> list[bool]:
        """The slots of the buffer: whether each holds an element."""
        count = len(self._elements)
        return [slot < count for slot in range(self._capacity)]

    @property
    def is_exhausted(self) -> bool:
        """Returns whether all elements have been taken and reading raised no error."""
        with self._changed:
            return self._is_over and not self._elements and self._error is None

    def read_to_end(self, elements: Iterable[object]) -> None:
        """Reads all elements into the buffer, waiting while it is full; runs in the thread."""
        try:
            for element in elements:
                if not self._append_element(element):
                    break
        except BaseException as error:  # who takes the elements is to see it
            self.end_reading_with_error(error)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def end_reading_with_error(self, error: BaseException) -> None:
        """Ends the reading with an error."""
        with self._changed:
            self._error = error
            self._is_over = True
            self._changed.notify_all()

    def take_error(self) -> BaseException | None:
        """Returns the error that reading raised, to be seen after the elements, and forgets it.

        The ring must not hold it: its traceback holds the ring, and all that the reader needed.
        """
        error, self._error = self._error, None
        return error

    def _append_element(self, element: object) -> bool:
        """Appends an element, then waits for room for another; False if reading was cancelled."""
        with self._changed:
            self._elements.append(element)
            self._changed.notify_all()
            self._changed.wait_for(self._may_continue)
            return not self._is_cancelled

    def _may_continue(self) -> bool:
        has_room = self._is_started and len(self._elements) < self._capacity
        return has_room or self._is_cancelled

    def let_reading_continue(self) -> None:
        """Lets the thread read on after the first element."""
        with self._changed:
            self._is_started = True
            self._changed.notify_all()

    def cancel_reading(self) -> None:
        """Asks the thread to stop reading."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def wait_until_read(self) -> None:
        """Waits until the thread has stopped reading."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over)

    def wait_for_element(self) -> bool:
        """Waits for an element; returns False if there is none left."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._elements)
            return bool(self._elements)

    def take_element(self) -> PyTree:
        """Removes and returns the next element, which must be there."""
        with self._changed:
            element = self._elements.popleft()
            self._changed.notify_all()
            return element


class ReadAhead:
    """A thread that reads one iterable after another ahead, each into a ring of its own.

    Args:
      capacity: how many elements it may be ahead.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._thread = Worker("poptorch.AsynchronousDataAccessor")
        self._data_buffers: Ring | None = None
        _living.add(self)

    def start_reading(self, read: Callable[[], Iterable[object]], *, is_started: bool) -> Ring:
        """Starts reading another iterable into a new ring.

        Args:
          read: returns the iterable; called here, so that the thread does not hold what it needs.
          is_started: whether to read on after the first element, before anybody asks for it.
        """
        if self._data_buffers is not None:
            self._data_buffers.cancel_reading()
            self._data_buffers.wait_until_read()
        ring = self._data_buffers = Ring(self._capacity, is_started=is_started)
        try:
            self._thread.submit_task(ring.read_to_end, read())
        except BaseException as error:  # as if the thread had read it
            ring.end_reading_with_error(error)
        return ring

    def stop_reading(self) -> None:
        """Ends the thread after its current element."""
        if self._data_buffers is not None:
            self._data_buffers.cancel_reading()
        self._thread.stop_after_tasks()


_living: weakref.WeakSet[ReadAhead] = weakref.WeakSet()


@atexit.register
def _stop_living_readers() -> None:
    for reader in list(_living):
        reader.stop_reading()
