"""Writes live pages of the site: the reports of the gallery's programs, and the playground.

`python docs/site_gallery.py FOLDER`. docs/conf.py runs it in a process of its own, since Sphinx
forks and JAX has threads.
"""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

from site_sources import write

import ipujax as ipu
from ipujax.report import Report

PROGRAMS = Path(__file__).parent / "gallery"


def make_report(program: Path) -> Report:
    """Runs a program of the gallery, and returns its `report`.

    Its lines are called `pipeline.py:12`, wherever the folder is on the machine that runs it.
    """
    text = program.read_text("utf-8")
    linecache.cache[program.name] = (len(text), None, text.splitlines(True), program.name)
    names: dict[str, Report] = {}
    ipu.config.reset_ipu_configuration()
    exec(compile(text, program.name, "exec"), names)
    return names["report"]


def write_pages(folder: Path) -> None:
    """Writes the page of each program's report, and the playground, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "playground.html", ipu.schedules.playground())
    for program in sorted(PROGRAMS.glob("*.py")):
        page = folder / f"{program.stem}.html"
        make_report(program).to_html(page.with_suffix(".new"))
        write(page, page.with_suffix(".new").read_text("utf-8"))
        page.with_suffix(".new").unlink()


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
