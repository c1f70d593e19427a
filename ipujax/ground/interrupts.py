"""Delays Ctrl-C while a program with queues runs, until an iteration is complete or it waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import Any


class Interrupts:
    """A handler of SIGINT that delays it, so that elements read and results sent agree.

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
                signal.signal(signal.SIGINT, self._handle_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        if signal.getsignal(signal.SIGINT) == self._handle_signal:
            signal.signal(signal.SIGINT, self._handler)
        self.handle_delayed_interrupt()

    def handle_delayed_interrupt(self) -> None:
        """Handles a delayed interrupt; to be called at safe points."""
        if self._held:
            self._handler(*self._held.pop())

    @contextlib.contextmanager
    def handle_interrupts_immediately(self) -> Generator[None]:
        """Handles interrupts immediately within the block; without effect in other threads."""
        if self._thread != threading.get_ident():
            yield
            return
        was_safe, self._is_safe = self._is_safe, True
        try:
            self.handle_delayed_interrupt()
            yield
        finally:
            self._is_safe = was_safe

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_safe or self._held:
            self._held.clear()
            self._handler(number, frame)
        else:
            self._held.append((number, frame))
