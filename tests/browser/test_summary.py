"""The first view: where the time goes, in parts that add up, and words that say what they mean."""

from __future__ import annotations

import dataclasses as dc
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from ipujax.ground import format_percents
from ipujax.report import Report
from ipujax.report.device_meshes import DeviceMesh
from ipujax.report.presentation import html
from tests.browser.looking import Visit, frames, selection, show
from tests.browser.samples import IPUS

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
JARGON = ("rests on", "default", "utilisation", "compute share", "IPU-cycles", "_")


def causes_of(report: Report) -> dict[str, list[int]]:
    """Those that are not nothing, by IPU."""
    assert report.breakdown is not None
    return {cause: each.tolist() for cause, each in report.breakdown.items() if each.any()}


def widths(row: Locator) -> list[float]:
    """Of the parts of a bar, in percent of it."""
    return row.locator(".cause-bar > span").evaluate_all(
        "parts => parts.map(part => parseFloat(part.style.width))"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_bars_add_up(
    dark: bool, pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    view = show(visit.open(pages["pipeline"], dark=dark), "summary")
    report = reports["pipeline"]
    causes = causes_of(report)
    assert {"bubble", "imbalance", "update"} <= causes.keys()
    for ipu in range(IPUS):
        row = view.locator(f".cause-row[data-ipu='{ipu}']")
        parts = [cycles[ipu] for cycles in causes.values()]
        assert sum(parts) == report.cycles
        shares = [100 * part / report.cycles for part in parts]
        assert widths(row) == pytest.approx(shares, abs=1e-3)
        said = row.get_attribute("aria-label")
        assert said is not None
        assert all(f"{c}: {p}" in said for c, p in zip(causes, format_percents(parts), strict=True))
    whole = [sum(cycles) for cycles in causes.values()]
    key = view.locator(".cause-key b").all_inner_texts()
    assert key == format_percents(whole)
    assert sum(round(10 * float(text.removesuffix("%"))) for text in key) == 1000
    assert len(widths(view.locator(".cause-row[data-ipu=all]"))) == len(causes)


def test_one_ipu_has_one_bar(pages: dict[str, Path], visit: Visit) -> None:
    view = show(visit.open(pages["small"]), "summary")
    assert view.locator(".cause-row").count() == 1
    assert view.locator("[data-cause=bubble]").count() == 0


def test_a_bar_selects_its_ipu(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    row = show(tab, "summary").locator(".cause-row[data-ipu='2']")
    row.focus()
    tab.keyboard.press("Enter")
    frames(tab)
    assert selection(tab)["ipu"] == 2
    assert row.get_attribute("aria-pressed") == "true"
    row.hover()
    assert tab.locator(".tooltip").inner_text().startswith("IPU 2\nwork: ")


def test_words_say_what_they_mean(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"], width=400)
    terms = show(tab, "summary").locator(".term")
    assert terms.count() >= 6
    glossary = GLOSSARY.read_text(encoding="utf-8")
    for i in range(terms.count()):
        terms.nth(i).focus()
        word, sentence = tab.locator(".tooltip").inner_text().split("\n")
        assert f"| {word} | {sentence} |" in glossary
        assert sentence in (terms.nth(i).get_attribute("aria-label") or "")
    tab.keyboard.press("Escape")
    assert not tab.locator(".tooltip").is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_first_view_has_no_jargon(pages: dict[str, Path], visit: Visit) -> None:
    for name in ("small", "pipeline"):
        panels = show(visit.open(pages[name]), "summary").locator(".panel")
        said = "".join(panels.nth(i).inner_text() for i in range(2))
        assert not [word for word in JARGON if word in said]


def test_reports_of_earlier_versions_open(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, tmp_path: Path
) -> None:
    assert pages["small"].exists()
    document = reports["small"].to_dict()
    del document["breakdown"]
    for operation in document["operations"]:
        del operation["label"]
    path = tmp_path / "older.html"
    path.write_text(html.render_html_page([document]), encoding="utf-8")
    view = show(visit.open(path), "summary")
    assert "model the program again" in view.inner_text()


def test_the_meshes_of_ipus_are_listed(reports: dict[str, Report], visit: Visit) -> None:
    meshes = (
        DeviceMesh(0, 0, ("data", "model"), (2, 2), ("cpu:0", "cpu:1", "cpu:2", "cpu:3")),
        DeviceMesh(0, 1, ("data", "model"), (2, 2), ("cpu:4", "cpu:5", "cpu:7", "cpu:6")),
    )
    report = dc.replace(reports["pipeline"], meshes=meshes)
    view = show(visit.open(html.render_html_page([report.to_dict()])), "summary")
    assert view.locator(".meshes li").all_inner_texts() == [
        "IPU 0: mesh data=2, model=2 of cpu:0..3",
        "IPU 1: mesh data=2, model=2 of cpu:4..5, cpu:7, cpu:6",
    ]
