"""The Source view: the user's lines with what each takes, and the operations that it comes to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from playwright.sync_api import Locator, Page

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, frames, operations_table, selection, show
from tests.ipujax.reporting import configured, struct


def dense(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights)


def model(weights: Any, x: Any) -> Any:
    x = dense(weights, x)
    x = dense(weights, x)
    return x * 2


INNER = dense.__code__.co_firstlineno + 1
CALLS = [model.__code__.co_firstlineno + below for below in (1, 2)]
LAST = model.__code__.co_firstlineno + 3
FILE = Path(__file__).name


@pytest.fixture(scope="module")
def report() -> Report:
    configured(1)
    return ipu.compile(model).lower(struct(16, 16), struct(8, 16)).report()


def opened(visit: Visit, document: dict[str, Any], **window: Any) -> tuple[Page, Locator]:
    tab = visit.open(html.render_html_page([document]), **window)
    return tab, show(tab, "source")


def line(view: Locator, number: int) -> list[str]:
    """The cells of a line, which must be in sight."""
    rows = view.locator("[data-table=source] tr[data-row]").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return next(cells for cells in rows if cells[0] == str(number))


def told(cycles: float) -> str:
    """Cycles as the page tells them."""
    return f"{float(f'{cycles / 1000:.3g}'):g} k" if cycles >= 1000 else f"{cycles:.0f}"


def of_line(report: Report, number: int, *, alone: bool = False) -> list[Any]:
    """Operations that a line calls, or those that are on it."""
    way = f"{__file__}:{number} "
    ops = report.operations
    if alone:
        return [one for one in ops if one.call_path[-1].startswith(way)]
    return [one for one in ops if any(frame.startswith(way) for frame in one.call_path)]


def test_lines_have_their_cycles_alone_and_with_what_they_call(
    report: Report, visit: Visit
) -> None:
    _, view = opened(visit, report.to_dict())
    for number in (INNER, LAST, *CALLS):
        cells = line(view, number)
        assert told(sum(one.cycles for one in of_line(report, number))) in cells[1]
        alone = sum(one.cycles for one in of_line(report, number, alone=True))
        assert cells[2].strip() == (told(alone) if alone else "")
    assert line(view, INNER)[-1] == "    return jnp.tanh(x @ weights)"
    assert line(view, CALLS[0])[-1] == "    x = dense(weights, x)"
    assert FILE in view.inner_text()


def test_a_line_lists_its_operations_and_is_selected_in_all_views(
    report: Report, visit: Visit
) -> None:
    tab, view = opened(visit, report.to_dict())
    view.locator("[data-table=source] tr", has_text=f"{CALLS[1]}").first.click()
    frame = f"{__file__}:{CALLS[1]} (model)"
    assert selection(tab)["origin"] == frame
    called = of_line(report, CALLS[1])
    listed = view.locator("[data-table=source-operations] tr[data-row]")
    assert listed.count() == len(called) < len(report.operations)
    assert f":{INNER}" in listed.first.inner_text()
    assert operations_table(tab).locator("tr.selected").count() == len(called)
    assert show(tab, "program").locator(".is-linked").count() >= len(called)
    takes = told(sum(one.cycles for one in called))
    assert f"takes {takes} cycles" in show(tab, "timeline").locator(".controls.below").inner_text()


def test_a_click_counts_though_the_table_scrolls_a_little_meanwhile(
    report: Report, visit: Visit
) -> None:
    tab, view = opened(visit, report.to_dict())
    view.locator("[data-table=source] tr", has_text=f"{CALLS[1]}").first.hover()
    tab.mouse.down()
    view.locator(".table-scroll").first.evaluate("box => box.dispatchEvent(new Event('scroll'))")
    frames(tab)
    tab.mouse.up()
    assert selection(tab)["origin"] == f"{__file__}:{CALLS[1]} (model)"


def test_an_operation_of_a_line_is_selected_and_tells_its_calls(
    report: Report, visit: Visit
) -> None:
    tab, view = opened(visit, report.to_dict())
    view.locator("[data-table=source-operations] tr[data-row]").first.click()
    chosen = next(o for o in report.operations if o.number == selection(tab)["operation"])
    said = view.locator(".tree-details")
    assert chosen.name in said.inner_text()
    calls = said.locator("[data-frame]")
    assert calls.count() == len(chosen.call_path)
    calls.first.click()
    frames(tab)
    assert view.locator("[data-table=source] tr.exact").locator("td").first.inner_text() in {
        str(number) for number in (*CALLS, LAST)
    }


def test_what_is_selected_elsewhere_is_found_among_the_lines(report: Report, visit: Visit) -> None:
    tab, view = opened(visit, report.to_dict())
    number = report.operations[0].number
    row = operations_table(tab).locator("tr[data-row='0']")
    row.click()
    assert selection(tab)["operation"] == number
    show(tab, "source")
    at = view.locator("[data-table=source] tr.exact td").first.inner_text()
    assert at == report.operations[0].call_path[-1].split(":")[1].split(" ")[0]


def test_files_of_packages_are_not_shown_beside_the_users(report: Report, visit: Visit) -> None:
    document = report.to_dict()
    library = f"{sys.prefix}/lib/site-packages/library/layers.py:3 (Dense.__call__)"
    document["strings"].append(library)
    document["operations"][0]["call_path"].append(len(document["strings"]) - 1)
    _, view = opened(visit, document)
    assert view.get_by_role("button", name="layers.py").count() == 0


def test_cells_of_notebooks_and_cut_files_are_shown(report: Report, visit: Visit) -> None:
    document = report.to_dict()
    strings = document["strings"]
    document["strings"] = [
        text.replace(f"{__file__}:", "cell 12, line ") if text else text for text in strings
    ]
    text = Path(__file__).read_text(encoding="utf-8").splitlines(keepends=True)
    ends = [(INNER, INNER), (CALLS[0], LAST)]
    document["sources"] = [
        {"file": "cell 12", "line": first, "text": "".join(text[first - 1 : last])}
        for first, last in ends
    ]
    _, view = opened(visit, document)
    assert view.locator("[data-table=source] tr[data-row]").count() == 1 + LAST - CALLS[0] + 1
    assert "cell 12" in view.inner_text()
    assert f"Operations of cell 12, line {INNER}" in view.inner_text()


def test_lines_without_text_and_reports_without_lines(report: Report, visit: Visit) -> None:
    document = report.to_dict()
    del document["sources"]
    _, view = opened(visit, document)
    assert "its text is not in this report" in view.inner_text()
    assert view.locator("[data-table=source] tr[data-row]").count() == 4
    for one in document["operations"]:
        one["call_path"], one["origin"] = [], ""
    _, view = opened(visit, document)
    assert "No operation" in view.inner_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_narrow_window_keeps_lines_cycles_and_text(
    report: Report, visit: Visit, dark: bool
) -> None:
    tab, view = opened(visit, report.to_dict(), width=400, dark=dark)
    heads = view.locator("[data-table=source] th").all_inner_texts()
    assert [head.strip() for head in heads] == ["line", "cycles", "alone", "text"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
