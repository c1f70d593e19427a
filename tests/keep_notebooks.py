"""`python -m tests.keep_notebooks FILES`: keeps executed notebooks beside their sources.

What changes with every run and says nothing is left out: ids of cells, times, versions, and what
was logged. Drawings become images: places that show notebooks leave out what is drawn in HTML.
"""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

from tests.harness import ROOT

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


# As plots are: dark on white, wherever they are shown.
_ON_WHITE = "background:#fff;color:#1b1f24;"


def image(drawing: str) -> str:
    """An SVG as an `<img>` of the same width."""
    width, title = (re.search(f'{name}="(.*?)"', drawing) for name in ("width", "aria-label"))
    data = base64.b64encode(drawing.replace('style="', f'style="{_ON_WHITE}', 1).encode()).decode()
    shown = f' width="{width[1]}"' if width else ""
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{title[1] if title else ""}"{shown}>'


def keep_drawings(data: dict[str, Any]) -> None:
    """Makes images of drawings among what an output shows; a report's page stays a page."""
    found = re.search(r"<svg\b.*</svg>", data.get("text/html", ""), re.DOTALL)
    if found and "<iframe" not in data["text/html"]:
        data["text/html"] = image(found[0])
    if "image/svg+xml" in data:
        data["text/html"] = image(data.pop("image/svg+xml"))


def main(paths: list[str]) -> None:
    """Keeps each notebook."""
    for path in map(Path, paths):
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
        for number, cell in enumerate(notebook.cells):
            cell.id, cell.metadata = f"cell-{number}", {}
            if "outputs" in cell:
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
                for output in cell.outputs:
                    keep_drawings(output.get("data", {}))
        nbformat.write(notebook, ROOT / "notebooks" / path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
