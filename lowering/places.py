"""Where a line of the user's is, in words: `model.py:7`, or `cell 12, line 7` in a notebook."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_LINE = re.compile(r"(.*)(?::|, line )(\d+)(?: \(.*\))?$")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def line_of_file(file: str, line: int) -> str:
    """A line of a file, or of a notebook's cell: the number is that of its last run."""
    cell = _cells().get(file)
    return f"{file}:{line}" if cell is None else f"cell {cell}, line {line}"


def place_in(line: str) -> tuple[str, int] | None:
    """What `line_of_file` names, a function after it or not: the file or cell, and the number.

    None of any other text.
    """
    found = _LINE.match(line)
    return (found[1], int(found[2])) if found else None


def file_behind(name: str) -> str:
    """The file that is called so: itself, or the one that IPython pretends a cell is."""
    return next((file for file, cell in _cells().items() if f"cell {cell}" == name), name)


def is_installed(file: str) -> bool:
    """Whether a file is one of an installed package."""
    return _INSTALLED.search(file) is not None


def _cells() -> Mapping[str, int]:
    """The number of each cell by the file that IPython pretends it is."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(getattr(shell, "compile", None), "_filename_map", {})
