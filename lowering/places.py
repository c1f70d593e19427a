"""Where a line of the user's is, in words: `model.py:7`, or `cell 12, line 7` in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def line_of_file(file: str, line: int) -> str:
    """A line of a file, or of a notebook's cell: the number is that of its last run."""
    cell = _cells().get(file)
    return f"{file}:{line}" if cell is None else f"cell {cell}, line {line}"


def _cells() -> Mapping[str, int]:
    """The number of each cell by the file that IPython pretends it is."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(getattr(shell, "compile", None), "_filename_map", {})
