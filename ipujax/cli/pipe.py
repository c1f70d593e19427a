"""Output that goes nowhere: readers that stop early, full disks, terminals of few letters."""

from __future__ import annotations

import functools
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from ipujax.cli import style


class Main(Protocol):
    """A command: takes its arguments and the name by which it was called, gives the exit code."""

    def __call__(self, argv: Sequence[str] | None = None, prog: str = ...) -> int:
        """Runs it."""
        ...


def ends_with_its_reader(main: Callable[[Sequence[str] | None, str], int]) -> Main:
    """A `main` that ends quietly when whoever reads its output has gone.

    Output that cannot be written, as the disk is full, is an error in a line. Letters that the
    output's encoding does not have are written as escapes.
    """
    own_name: str = inspect.signature(main).parameters["prog"].default

    @functools.wraps(main)
    def quiet(argv: Sequence[str] | None = None, prog: str = own_name) -> int:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a test's or a notebook's may be another
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return main(argv, prog)
            finally:
                if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
                    sys.stdout.flush()  # also of help, after which `argparse` exits
        except BrokenPipeError:
            _give_up_output()
            return 1
        except OSError as error:
            if error.filename is not None:  # of a file; what is printed has no name
                raise
            _give_up_output()
            return style.fail(prog, f"the output cannot be written: {error.strerror or error}")

    return quiet


def _give_up_output() -> None:
    """Python flushes once more when it ends; that must not fail either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
