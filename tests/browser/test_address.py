"""The address of a page says what is seen and selected, and opens it there again."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, frames, operations_table, selection, show, shown


def fragment(tab: Page) -> str:
    """What follows the file in the address."""
    return tab.evaluate("location.hash")


def test_an_address_opens_the_view_and_selects(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    assert pages["small"]
    operation = reports["small"].operations[1]
    at = f"#program?operation={operation.number}&ipu=0"
    tab = visit.open(pages["small"], at=at)
    assert fragment(tab) == at
    assert shown(tab) == "program"
    chosen = selection(tab)
    assert (chosen["name"], chosen["origin"]) == (operation.name, operation.origin)
    assert (chosen["operation"], chosen["ipu"]) == (operation.number, 0)
    assert operation.label in tab.locator("[data-view=program] .is-exact").inner_text()


def test_what_is_selected_can_be_sent_on(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    chosen = [
        {"origin": "a folder/it's.py:3 (<lambda>)", "name": "mul & add? float16[2,3]#", "ipu": 0},
        {"scope": "blocks/attention 1", "step": 4, "tile": 7},
        {"category": "fifos"},
    ]
    for patch in chosen:
        tab.evaluate("patch => window.ipujax.store.restore(patch)", patch)
        frames(tab)
        assert " " not in fragment(tab)
        other = visit.open(pages["small"], at=fragment(tab))
        assert selection(other) == selection(tab)
        assert {key: value for key, value in selection(other).items() if value is not None} == patch
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.get_by_role("button", name="Copy a link").click()
    tab.get_by_role("button", name="Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == tab.url


def test_ticks_and_ipus_are_restored(pages: dict[str, Path], visit: Visit) -> None:
    for view in ("schedule", "timeline"):
        tab = visit.open(pages["pipeline"], at=f"#{view}?ipu=2&tick=3")
        assert shown(tab) == view
        assert (selection(tab)["ipu"], selection(tab)["tick"]) == (2, 3)


@pytest.mark.parametrize("at", ["#nothing?operation=99999&ipu=77&tick=4&tile=x", "#?&=&a", "#%"])
def test_what_a_report_does_not_have_is_left_out(
    pages: dict[str, Path], visit: Visit, at: str
) -> None:
    tab = visit.open(pages["small"], at=at)
    assert fragment(tab) == "#summary"
    assert not any(value is not None for value in selection(tab).values())


def test_the_way_back_leads_to_what_was_selected(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    rows = operations_table(tab).locator("tr[data-row]")
    names: list[str] = []
    for row in (0, 3):
        rows.nth(row).click()
        names.append(selection(tab)["name"])
    show(tab, "memory").locator("canvas").first.press("Enter")  # a tile: the same place
    assert selection(tab)["tile"] is not None
    for view, name in (("operations", names[1]), ("operations", names[0]), ("operations", None)):
        tab.go_back()
        assert (shown(tab), selection(tab)["name"]) == (view, name)
    for name in names:
        tab.go_forward()
        assert (shown(tab), selection(tab)["name"]) == ("operations", name)
    tab.go_forward()
    assert selection(tab)["tile"] is not None


def test_two_reports_open_where_both_were(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, tmp_path: Path
) -> None:
    assert pages["small"]
    path = tmp_path / "both.html"
    path.write_text(html.render_html_page([reports["small"].to_dict()] * 2), encoding="utf-8")
    number = reports["small"].operations[0].number
    tab = visit.open(path, at=f"#operations?operation={number}")
    assert tab.locator("[data-view=operations] .is-exact").count() == 2


def test_a_frame_without_an_address_selects_all_the_same(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    assert pages["small"]
    tab = visit.tab()
    frame_of = html.render_notebook_iframe([reports["small"].to_dict()])
    tab.set_content(f"<!doctype html><body>{frame_of}</body>")
    frame = tab.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for()
    frame.locator("[data-tab=operations]").click()
    frame.locator(".switch").get_by_role("button", name="operation", exact=True).click()
    frame.locator("tr[data-row]").first.click()
    frame.locator("[data-tab=timeline]").click()
    assert "(outlined)" in frame.locator("[data-view=timeline] .controls.below").inner_text()
    assert frame.get_by_role("button", name="Copy a link").count() == 0
