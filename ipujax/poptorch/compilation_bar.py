"""The progress bar of a compilation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator

from ipujax.training import progress_bar

_STEPS = 2  # the module is traced, the program is compiled


@contextlib.contextmanager
def compilation_bar(is_shown: bool) -> Generator[Callable[[], object]]:
    """Shows in the block how far a compilation is, if standard error is a terminal.

    Args:
      is_shown: whether to show the bar.

    Yields:
      A function to call when the module is traced, and again when its program is compiled.
    """
    if not is_shown or not sys.stderr.isatty():
        yield lambda: None
        return
    bar = progress_bar(_STEPS, "Graph compilation")
    try:
        yield bar.update
    finally:
        bar.close()
