"""Pictures of pages are those that the code draws now, and the gallery's programs what it says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness import ROOT

DOCS = ROOT / "docs"
NAMES = sorted(path.name.removesuffix("-light.svg") for path in DOCS.glob("pictures/*-light.svg"))


@pytest.fixture
def import_from_docs(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of the pages, none of which is part of a package."""

    def find(name: str) -> ModuleType:
        for folder in (DOCS, DOCS / "pictures"):
            monkeypatch.syspath_prepend(folder)
        module = __import__(name)
        for loaded in (
            "diagrams",
            "draw",
            "family",
            "scatter",
            "site_gallery",
            "site_names",
            "site_sources",
        ):
            sys.modules.pop(loaded, None)
        return module

    return find


@pytest.mark.parametrize("name", NAMES)
def test_drawings_are_new(name: str, import_from_docs) -> None:
    draw = import_from_docs("draw")
    assert sorted(draw.DRAWINGS) == NAMES
    for file, text in draw.files_of(name).items():
        kept = (DOCS / "pictures" / file).read_text("utf-8")
        assert kept == text, "draw it anew: .venv/bin/python docs/pictures/draw.py"


@pytest.mark.parametrize("name", NAMES)
def test_drawings_can_be_read_on_a_phone(name: str) -> None:
    """Text has 12 of the drawing's pixels; a phone shows 360 of them."""
    text = (DOCS / "pictures" / f"{name}-light.svg").read_text("utf-8")
    width = re.search(r'viewBox="0 0 (\d+) ', text)
    assert width
    assert 12 * min(1, 360 / int(width[1])) > 10


def test_the_scatter_has_each_row_of_the_page_where_it_belongs() -> None:
    page = (DOCS / "validation.md").read_text("utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.count(" | ") == 4]
    rows = [row for row in rows if row[1] != "measured"]
    memory = [row for row in rows if row[1].endswith(" bytes")]
    text = (DOCS / "pictures" / "validation-light.svg").read_text("utf-8")
    points = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="4" height="4"', text)
    assert len(points) == len(rows) + 1  # and the legend's
    assert f"memory, bytes ({len(memory)})" in text
    # Of the last panel, left 44, top 426, decades 4 to 9 on 150 pixels: the points come last.
    found = points[-len(memory) - 1 : -1]
    for (x, y), row in zip(found, memory, strict=True):
        above_the_line = 576 - (float(y) + 2) - (float(x) + 2 - 44)
        ratio = 10 ** (above_the_line / 150 * 5)
        assert ratio == pytest.approx(float(row[3]), rel=0.02)


def test_reports_of_the_gallery_are_what_the_page_says(tmp_path: Path, import_from_docs) -> None:
    gallery = import_from_docs("site_gallery")
    reports = {path.stem: gallery.make_report(path) for path in DOCS.glob("gallery/*.py")}
    page = (DOCS / "gallery.md").read_text("utf-8")
    assert set(re.findall(r"\(gallery/(\w+)\.py\)", page)) == set(reports)
    pipeline = reports["pipeline"]
    assert (pipeline.num_ipus, pipeline.pipeline.schedule) == (4, "1f1b")
    assert [report.memory.fits for report in reports.values()].count(False) == 1
    assert not reports["out_of_memory"].memory.fits
    assert any("pipeline.py:" in operation.origin for operation in pipeline.operations)
    assert str(DOCS) not in json.dumps(pipeline.to_dict())
    gallery.write_pages(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.html")} == {*reports, "playground"}


def test_the_site_shows_the_picture_of_the_theme_and_the_width(import_from_docs) -> None:
    adapt_page = import_from_docs("site_sources").adapt_page
    text = adapt_page("gallery", (DOCS / "gallery.md").read_text("utf-8"))
    assert "<picture>" not in text
    narrow = text.partition("pictures/pipeline-narrow-dark.png\n")[2]
    assert narrow.startswith(":class: only-dark narrow-page\n:alt: ")
    assert text.count("```{image}") == 3 * 4
    assert '<a href="live/pipeline.html">Open the report</a>' in text


def test_links_to_the_changelog_lead_to_its_page(tmp_path: Path, import_from_docs) -> None:
    site_sources = import_from_docs("site_sources")
    assert site_sources.adapt_page("faq", "[x](../CHANGELOG.md)") == "[x](changelog.md)"
    source, page = tmp_path / "CHANGELOG.md", tmp_path / "changelog.md"
    source.write_text("[Limits](docs/limits.md)", "utf-8")
    site_sources.copy_changelog(source, page)
    assert page.read_text("utf-8") == "[Limits](limits.md)"


def test_menus_and_the_search_button_of_the_site_have_names(import_from_docs) -> None:
    name_controls = import_from_docs("site_names").name_controls
    menu = '<a class="reference internal" href="x.html">How to</a><details>'
    button = '<button class="btn search-button-field" title="Search"'
    sidebar = '<div class="sidebar-primary-items__start sidebar-primary__section"'
    page = f'{sidebar}>{button} aria-label="Search">Search Ctrl+K</button>{menu}<summary><i></i>'
    named = name_controls(page)
    assert f'{menu}<summary aria-label="Pages below How to">' in named
    assert f"{button}>Search Ctrl+K" in named
    assert f'{sidebar} role="navigation" aria-label="Site">' in named
    assert name_controls(named) == named
