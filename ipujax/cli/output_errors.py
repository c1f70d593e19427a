"""Handles output that cannot be written (closed pipes, full disks), and unknown devices."""

from __future__ import annotations

import functools
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from ipujax.ground import DeviceError
from ipujax.ground import terminal_style as style


class CommandMain(Protocol):
    """A command's main function: takes arguments and the command's name, returns the exit code."""

    def __call__(self, argv: Sequence[str] | None = None, prog: str = ...) -> int:
        """Runs the command."""
        ...


def handle_output_errors(main: Callable[[Sequence[str] | None, str], int]) -> CommandMain:
    """Wraps a `main` so that it ends quietly when the reader of its output has gone.

    If output cannot be written, as on a full disk, it prints an error of one line. Characters that
    the output's encoding lacks are written as escapes. A device that the machine does not have is
    an error in the arguments, with exit code 2.
    """
    default_prog: str = inspect.signature(main).parameters["prog"].default

    @functools.wraps(main)
    def run_main(argv: Sequence[str] | None = None, prog: str = default_prog) -> int:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a test's or a notebook's may be another
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return main(argv, prog)
            finally:
                if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
                    sys.stdout.flush()  # also of help, after which `argparse` exits
        except DeviceError as error:
            style.print_error(prog, str(error))
            raise SystemExit(2) from None
        except BrokenPipeError:
            _discard_stdout()
            return 1
        except OSError as error:
            if error.filename is not None:  # an error of a file; those of printing have no name
                raise
            _discard_stdout()
            return style.print_error(
                prog, f"the output cannot be written: {error.strerror or error}"
            )

    return run_main


def _discard_stdout() -> None:
    """Redirects stdout to the null device, so that Python's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
