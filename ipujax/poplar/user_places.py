"""The user's line, kept cheaply for every tensor, vertex and program of a graph."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def user_place() -> str:
    """Returns `file:line` of the innermost caller outside the package, or ""."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<frozen")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
