"""The user's source lines in words: `model.py:7`, or `cell 12, line 7` in a notebook."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_LINE = re.compile(r"(.*)(?::|, line )(\d+)(?: \(.*\))?$")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def name_source_line(file: str, line: int) -> str:
    """Returns the name of a line of a file, or of a notebook's cell by its last run's number."""
    cell = _cell_numbers().get(file)
    return f"{file}:{line}" if cell is None else f"cell {cell}, line {line}"


def parse_source_line(line: str) -> tuple[str, int] | None:
    """Returns the file or cell, and the number, that a text of `name_source_line` names.

    A function may follow the line. Returns None for any other text.
    """
    match = _LINE.match(line)
    return (match[1], int(match[2])) if match else None


def file_of_cell(file_or_cell: str) -> str:
    """Returns a file as it is, or for a cell the file name that IPython gives it."""
    return next(
        (file for file, cell in _cell_numbers().items() if f"cell {cell}" == file_or_cell),
        file_or_cell,
    )


def is_in_installed_package(file: str) -> bool:
    """Returns whether a file belongs to an installed package."""
    return _INSTALLED.search(file) is not None


def _cell_numbers() -> Mapping[str, int]:
    """Returns the number of each notebook cell, by the file name that IPython gives the cell."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(getattr(shell, "compile", None), "_filename_map", {})
