"""Ctrl-C while a program with queues runs: between its iterations, or while it waits for data."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import Any


class Interrupts:
    """Holds SIGINT back, so that what was read and what was sent agree when it is handled.

    Python would raise KeyboardInterrupt anywhere, also between taking an element and sending what
    was computed from it. As in `asyncio`, a handler stands in for the present one as long as a
    program runs; the present one is called at the next safe place, and at once by a second
    SIGINT. Threads other than the main one get no signals.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._thread = threading.get_ident()
        self._held: list[tuple[int, FrameType | None]] = []
        self._is_safe = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        if signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, self._handler)
        self.check()

    def check(self) -> None:
        """A safe place: handles what was held back."""
        if self._held:
            self._handler(*self._held.pop())

    @contextlib.contextmanager
    def handled_at_once(self) -> Generator[None]:
        """For the time of a `with` every place is safe; of no meaning in other threads."""
        if self._thread != threading.get_ident():
            yield
            return
        before, self._is_safe = self._is_safe, True
        try:
            self.check()
            yield
        finally:
            self._is_safe = before

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._is_safe or self._held:
            self._held.clear()
            self._handler(number, frame)
        else:
            self._held.append((number, frame))
