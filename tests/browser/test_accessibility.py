"""What assistive technology needs of pages, and that no number or hint is cut.

The rules are axe-core's `label-content-name-mismatch`, `scrollable-region-focusable` and
`empty-table-header`.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, operations_table, show, views_of

WINDOWS = [{"width": 1280}, {"width": 390, "dark": True}]

OTHERWISE_NAMED = """() => {
  const words = (text) => text.toLowerCase().replace(/[^\\p{L}\\p{N}]+/gu, " ").trim();
  const buttons = document.querySelectorAll(":is(button, a, [role=tab])[aria-label]");
  return [...buttons].filter((one) => one.checkVisibility())
    .map((one) => [words(one.getAttribute("aria-label")), words(one.innerText)])
    .filter(([name, seen]) => seen.length > 1 && !name.includes(seen));
}"""

# A list that belongs to a combobox is walked through from there.
UNREACHABLE = """() => [...document.querySelectorAll("*")].filter((one) => {
  const { overflowX, overflowY } = getComputedStyle(one);
  const scrolls = (["auto", "scroll"].includes(overflowX) && one.scrollWidth > one.clientWidth + 1)
    || (["auto", "scroll"].includes(overflowY) && one.scrollHeight > one.clientHeight + 1);
  const reached = (node) => node.tabIndex >= 0 && node.checkVisibility();
  const needsReach = scrolls && one.role !== "listbox" && one.checkVisibility();
  return needsReach && ![one, ...one.querySelectorAll("*")].some(reached);
}).map((one) => one.outerHTML.slice(0, 200))"""

EMPTY_HEADS = (
    """() => [...document.querySelectorAll("th")].filter((one) => !one.textContent.trim()).length"""
)

CUT_NUMBERS = """() => [...document.querySelectorAll("td.numeric, .tree-cell:not(.tree-cell-0)")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)
  .filter((text) => /^[^a-z]*[0-9][0-9.,]* ?([kMGT]?B?|%)$/.test(text))"""

# Chromium keeps the room of the button that empties a search field.
CUT_HINTS = """() => [...document.querySelectorAll("input[placeholder]")].filter((one) => {
  const style = getComputedStyle(one);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const button = one.type === "search" ? parseFloat(style.fontSize) : 0;
  const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  const room = one.clientWidth - padding - button;
  return one.checkVisibility() && pen.measureText(one.placeholder).width > room;
}).map((one) => one.placeholder)"""

# What tells names apart is often at their end: of texts that have no room, the middle is left out.
CUT_ENDS = """() => [...document.querySelectorAll(
  ".cut-middle > :last-child, tr[data-row] td:not(:has(.cut-middle))"
)].filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
  .map((one) => one.parentElement.textContent)"""


def check(tab: Page, view: str) -> None:
    """Fails with what is wrong on the page as it is now."""
    for rule in (OTHERWISE_NAMED, UNREACHABLE, CUT_NUMBERS, CUT_HINTS, CUT_ENDS):
        assert tab.evaluate(rule) == [], view
    assert tab.evaluate(EMPTY_HEADS) == 0, view


@pytest.mark.parametrize("window", WINDOWS, ids=["wide", "narrow-dark"])
def test_views_of_one_report_and_of_two(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, window: dict[str, Any]
) -> None:
    assert pages["small"]
    assert pages["pipeline"]
    both = [reports[name].to_dict() for name in ("small", "pipeline")]
    for documents in (both, both[1:]):
        tab = visit.open(html.render_html_page(documents), **window)
        for view in views_of(tab):
            show(tab, view)
            check(tab, view)
        for key in ("/", "?"):
            tab.keyboard.press(key)
            check(tab, key)
            tab.keyboard.press("Escape")


@pytest.mark.parametrize("window", WINDOWS, ids=["wide", "narrow-dark"])
def test_large_numbers_are_whole(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, window: dict[str, Any]
) -> None:
    assert pages["small"]
    document = copy.deepcopy(reports["small"].to_dict())
    for operation in document["operations"]:
        operation["runs"] *= 945
        operation["bytes"] *= 3151
        operation["flops"] *= 3151
    counts = document["program"]["count"]
    document["program"]["count"] = [31_500 if count > 1 else 1 for count in counts]
    tab = visit.open(html.render_html_page([document]), **window)
    for view in ("program", "operations"):
        show(tab, view)
        check(tab, view)
    operations_table(tab)
    check(tab, "operations, as a table")
