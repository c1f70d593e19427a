"""Readers that stop early, such as `head`, and terminals that do not know all letters."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

Given = ParamSpec("Given")


def ends_with_its_reader(main: Callable[Given, int]) -> Callable[Given, int]:
    """A `main` that ends quietly when whoever reads its output has gone.

    Letters that the output's encoding does not have are written as escapes.
    """

    @functools.wraps(main)
    def quiet(*args: Given.args, **kwargs: Given.kwargs) -> int:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a test's or a notebook's may be another
                stream.reconfigure(errors="backslashreplace")
        try:
            code = main(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes once more when it ends; that must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return code

    return quiet
