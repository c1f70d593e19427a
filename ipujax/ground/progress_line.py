"""A line on standard error that tells how far long work has come."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator

_QUIET_SECONDS = 4.0  # nothing is shown before


class ProgressLine:
    """The progress of some work in steps.

    Args:
      title: what the line begins with.
      total: how many steps there are.
    """

    def __init__(self, title: str, total: int):
        self._title, self._total, self._done = title, total, 0
        self._is_shown = False
        self._started = time.monotonic()

    def show_step(self, step: str) -> None:
        """Shows the step that begins now, once the work takes long."""
        self._done += 1
        if time.monotonic() - self._started > _QUIET_SECONDS:
            text = f"{self._title}: {self._done} of {self._total}, {step.ljust(32)}"
            print(f"\r{text}", end="", file=sys.stderr)
            self._is_shown = True

    def end(self) -> None:
        """Ends the line."""
        if self._is_shown:
            print(file=sys.stderr)


@contextlib.contextmanager
def show_progress(title: str, total: int) -> Generator[ProgressLine]:
    """Gives a line of progress for the block; see `ProgressLine`."""
    line = ProgressLine(title, total)
    try:
        yield line
    finally:
        line.end()
