"""A progress bar: tqdm's where it is installed, otherwise a line of our own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ipujax.training.callbacks import Callback, Run
from ipujax.training.checks import check
from ipujax.training.state import Tree


class Bar(Protocol):
    """What is used of tqdm."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """What stands behind the bar."""

    def update(self, n: float | None = 1) -> bool | None:
        """So many steps more."""

    def close(self) -> None:
        """Leaves the bar as it is."""


class _Line:
    """A line of our own, on standard error."""

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
            share = f"{100 * self._done // total:3d}%" if total else f"{self._done}"
            line = f"{self._title}: {share} {self._note}".ljust(self._length)
            self._length = len(line.rstrip())  # what a shorter line covers
            room = shutil.get_terminal_size().columns - 1  # a longer one would begin another
            print(f"\r{line[:room]}", end="", file=sys.stderr)

    def close(self) -> None:
        print(file=sys.stderr)


def loss_note(result: Tree) -> str:
    """The mean over the replicas of a result that is a loss alone."""
    return f"loss {np.mean(result):.4f}"


@check.guard
class Progress(Callback):
    """Shows how far a run is on standard error, result by result, while the device loop runs.

    Args:
      title: stands in front.
      note: what there is to say about a result.
    """

    def __init__(self, title: str = "training", note: Callable[[Tree], str] = loss_note):
        self._title, self._note = title, note
        self._bar: Bar | None = None

    def begin(self, run: Run) -> None:
        """Shows an empty bar."""
        total = None if run.steps is None else run.steps * run.results_per_step
        self._bar = progress_bar(total, self._title)

    def result(self, run: Run, result: Tree) -> None:
        """One result more."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._note(result), refresh=False)
            self._bar.update()

    def end(self, run: Run) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def progress_bar(total: int | None, title: str) -> Bar:
    """A bar of so many steps; None if nobody knows how many there are."""
    try:
        from tqdm import tqdm
    except ImportError:
        return _Line(total, title)
    return tqdm(total=total, desc=title, dynamic_ncols=True)
