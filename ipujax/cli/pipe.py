"""Readers that stop early, such as `head`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

Given = ParamSpec("Given")


def ends_with_its_reader(main: Callable[Given, int]) -> Callable[Given, int]:
    """A `main` that ends quietly when whoever reads its output has gone."""

    @functools.wraps(main)
    def quiet(*args: Given.args, **kwargs: Given.kwargs) -> int:
        try:
            code = main(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes once more when it ends; that must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return code

    return quiet
