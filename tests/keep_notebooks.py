"""`python -m tests.keep_notebooks FILES`: keeps executed notebooks beside their sources.

With `--check` they are compared with those that are kept: each cell shows the same kinds of things,
and a notebook prints the same words, but for a few. Numbers and samples differ between machines.

What changes with every run and says nothing is left out: ids of cells, times, versions, what was
logged, and where on this machine packages are. Drawings become images: places that show notebooks
leave out what is drawn in HTML.
"""

from __future__ import annotations

import base64
import gzip
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

from tests.harness import ROOT

_ALIKE = 0.9  # the share of words that is the same on all machines
_PACKAGES = re.compile(r"(?<=\")/[^\":]*/site-packages/")
_REPORT = re.compile(r"(class=(?:\"|&quot;)report(?:\"|&quot;)[^&>]*(?:>|&gt;))([\w+/=]+)")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


# As plots are: dark on white, wherever they are shown.
_ON_WHITE = "background:#fff;color:#1b1f24;"


def image(drawing: str) -> str:
    """An SVG as an `<img>` of the same width."""
    width, title = (re.search(f'{name}="(.*?)"', drawing) for name in ("width", "aria-label"))
    data = base64.b64encode(drawing.replace('style="', f'style="{_ON_WHITE}', 1).encode()).decode()
    shown = f' width="{width[1]}"' if width else ""
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{title[1] if title else ""}"{shown}>'


def reports(page: str) -> list[str]:
    """The documents of the reports in a page, as JSON."""
    return [unpacked(packed) for _, packed in _REPORT.findall(page)]


def unpacked(packed: str) -> str:
    """A report's document of a page."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def without_places(page: str) -> str:
    """A page whose reports name files of packages from the packages' own folders on."""

    def again(report: re.Match[str]) -> str:
        document = _PACKAGES.sub("", unpacked(report[2])).encode()
        return report[1] + base64.b64encode(gzip.compress(document, mtime=0)).decode()

    return _REPORT.sub(again, page)


def keep_drawings(data: dict[str, Any]) -> None:
    """Makes images of drawings among what an output shows; a report's page stays a page."""
    shown = data.get("text/html", "")
    if "<iframe" in shown:
        data["text/html"] = without_places(shown)
    elif found := re.search(r"<svg\b.*</svg>", shown, re.DOTALL):
        data["text/html"] = image(found[0])
    if "image/svg+xml" in data:
        data["text/html"] = image(data.pop("image/svg+xml"))


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs, with what was printed in several pieces as one of them; nothing of the log."""
    whole: list[Any] = []
    for each in outputs:
        if each.get("name") == "stderr":
            continue
        if whole and each.get("name") == whole[-1].get("name") == "stdout":
            whole[-1].text += each.text
        else:
            whole.append(each)
    return whole


def as_kept(path: Path) -> Any:
    """An executed notebook without what is left out."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if "outputs" in cell:
            cell.outputs = joined(cell.outputs)
            for output in cell.outputs:
                keep_drawings(output.get("data", {}))
    return notebook


def kinds(cell: Any) -> set[str]:
    """What a cell shows: text, images, pages."""
    return {kind for each in cell.get("outputs", ()) for kind in each.get("data", ["stream"])}


def words(notebook: Any) -> set[str]:
    """What a notebook prints, without numbers and short words."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", ())]
    texts = (each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs)
    return set(re.findall(r"[a-z_]{3,}", "\n".join(texts)))


def differences(kept: Any, executed: Any) -> list[str]:
    """What an executed notebook shows that the kept one does not, or the other way."""
    pairs = enumerate(zip(kept.cells, executed.cells, strict=True))
    found = [f"cell {number}: other outputs" for number, (a, b) in pairs if kinds(a) != kinds(b)]
    ours, theirs = words(kept), words(executed)
    if len(ours & theirs) < _ALIKE * len(ours | theirs):
        found.append(f"other words: {', '.join(sorted(ours ^ theirs)[:20])}")
    return found


def main(arguments: list[str]) -> int:
    """Keeps or checks each notebook; 1 if one has changed."""
    changed = 0
    for path in (Path(each) for each in arguments if each != "--check"):
        home, executed = ROOT / "notebooks" / path.name, as_kept(path)
        if "--check" not in arguments:
            nbformat.write(executed, home)
            continue
        for difference in differences(nbformat.read(home, as_version=4), executed):
            print(f"{path.name}: {difference}; run make kept-notebooks", file=sys.stderr)
            changed = 1
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
