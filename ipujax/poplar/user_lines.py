"""The user's source line, for error messages; cheap enough for every vertex and program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax

_OURS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], *jax.__path__))


def user_line() -> str:
    """Returns `file:line` of the innermost caller outside the package and JAX, or ""."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, "<frozen")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
