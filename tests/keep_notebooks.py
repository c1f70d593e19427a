"""`python -m tests.keep_notebooks FILES`: keeps executed notebooks beside their sources.

What changes with every run and says nothing is left out: ids of cells, times, versions, and what
was logged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

from tests.harness import ROOT

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(paths: list[str]) -> None:
    """Keeps each notebook."""
    for path in map(Path, paths):
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
        for number, cell in enumerate(notebook.cells):
            cell.id, cell.metadata = f"cell-{number}", {}
            if "outputs" in cell:
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
        nbformat.write(notebook, ROOT / "notebooks" / path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
