"""A progress bar: tqdm's where it is installed, otherwise a line on standard error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ipujax.training.training_callbacks import Callback, Run
from ipujax.training.training_checks import check
from ipujax.training.training_state import Tree


class ProgressBar(Protocol):
    """The methods of tqdm's bar that are used here."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Sets the text behind the bar."""

    def update(self, n: float | None = 1) -> bool | None:
        """Moves the bar by a number of steps."""

    def close(self) -> None:
        """Ends the bar as it is."""


class _ProgressLine:
    """A progress bar that is a line on standard error."""

    def __init__(self, total: int | None, desc: str):
        self._total, self._title, self._done, self._note = total, desc, 0, ""
        self._length = 0

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        del refresh
        self._note = s

    def update(self, n: float | None = 1) -> None:
        self._done += int(n or 0)
        total = self._total
        if self._done % max((total or 0) // 100, 1) == 0 or self._done == total:
            fraction = f"{100 * self._done // total:3d}%" if total else f"{self._done}"
            line = f"{self._title}: {fraction} {self._note}".ljust(self._length)
            self._length = len(line.rstrip())  # a shorter line covers as much
            width = shutil.get_terminal_size().columns - 1  # a longer line would wrap
            print(f"\r{line[:width]}", end="", file=sys.stderr)

    def close(self) -> None:
        print(file=sys.stderr)


def describe_loss(result: Tree) -> str:
    """Returns the text of a result that is a loss alone: its mean over the replicas."""
    return f"loss {np.mean(result):.4f}"


@check.guard
class Progress(Callback):
    """A callback that shows the progress of a run on standard error, result by result.

    Args:
      title: the text in front of the bar.
      note: returns the text about a result.
    """

    def __init__(self, title: str = "training", note: Callable[[Tree], str] = describe_loss):
        self._title, self._note = title, note
        self._bar: ProgressBar | None = None

    def begin(self, run: Run) -> None:
        """Shows an empty bar."""
        total = None if run.steps is None else run.steps * run.results_per_step
        self._bar = progress_bar(total, self._title)

    def result(self, run: Run, result: Tree) -> None:
        """Moves the bar by one result."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._note(result), refresh=False)
            self._bar.update()

    def end(self, run: Run) -> None:
        """Ends the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def progress_bar(total: int | None, title: str) -> ProgressBar:
    """Returns a progress bar; its total is None where the number of steps is unknown."""
    try:
        from tqdm import tqdm
    except ImportError:
        return _ProgressLine(total, title)
    return tqdm(total=total, desc=title, dynamic_ncols=True)
