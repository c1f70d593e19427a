"""A progress bar: tqdm's where it is installed, otherwise a line of our own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any


class Bar:
    """Counts steps and shows them.

    Attributes:
      done: steps so far.
    """

    def __init__(self, show: Callable[[int, str], None]):
        self.done = 0
        self._show = show

    def advance(self, note: str) -> None:
        """One step more, and what there is to say about it."""
        self.done += 1
        self._show(self.done, note)


@contextlib.contextmanager
def progress_bar(total: int, title: str) -> Generator[Bar]:
    """A bar for `total` steps, shown on standard error until the block ends."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield Bar(_plain(total, title))
        print(file=sys.stderr)
        return
    with tqdm(total=total, desc=title) as shown:

        def show(done: int, note: str) -> None:
            del done
            bar: Any = shown
            bar.set_postfix_str(note, refresh=False)
            bar.update()

        yield Bar(show)


def _plain(total: int, title: str) -> Callable[[int, str], None]:
    def show(done: int, note: str) -> None:
        if done % max(total // 100, 1) == 0 or done == total:
            print(f"\r{title}: {100 * done // total:3d}% {note}", end="", file=sys.stderr)

    return show
