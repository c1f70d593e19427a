"""What the views for memory, liveness, program and operations say, against the Report itself."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from ipujax.ground import format_percent
from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, operations_table, selection

Open = Callable[[str], tuple[Page, Locator, Report]]


@pytest.fixture
def opened(pages: dict[str, Path], reports: dict[str, Report], visit: Visit) -> Open:
    """Opens the page of the small sample at a view."""

    def open_view(view: str) -> tuple[Page, Locator, Report]:
        page = visit.open(pages["small"])
        page.click(f"[data-tab={view}]")
        return page, page.locator(f"[data-view={view}]"), reports["small"]

    return open_view


def rows_said(view: Locator) -> int:
    """How many rows a table says that it has."""
    return int(view.locator(".table-tools .faint").inner_text().split()[0])


def test_memory_shows_the_tensors_of_the_tile_that_is_typed(opened: Open) -> None:
    page, view, report = opened("memory")
    live = report.liveness[0]
    for tile in (0, 700, 1471):
        view.get_by_label("Tile", exact=True).fill(str(tile))
        view.get_by_label("Tile", exact=True).press("Enter")
        expected = [t for t in live.alive_at(live.worst) if t.mapping.bytes_per_tile()[tile]]
        assert f"Tile {tile} of IPU 0" in view.locator("h2").nth(1).inner_text()
        assert rows_said(view) == len(expected)
    assert selection(page)["tile"] == 1471


def test_memory_shows_one_category_alone(opened: Open) -> None:
    _, view, report = opened("memory")
    names = [name for name, held in report.memory.by_category.items() if held]
    assert view.locator("[data-category]").count() == len(names)
    button = view.locator("[data-category=stack]")
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert "Only stack" in view.inner_text()


def titles_of(view: Locator) -> list[str]:
    """The titles of a table's columns."""
    return [re.sub(r"\W+$", "", title) for title in view.locator("th").all_inner_texts()]


def test_liveness_lists_what_is_alive_at_each_step(opened: Open) -> None:
    page, view, report = opened("liveness")
    live = report.liveness[0]
    for step in range(len(live.names)):
        view.get_by_label("Step", exact=True).fill(str(step))
        view.get_by_label("Step", exact=True).press("Enter")
        assert selection(page)["step"] == step
        assert selection(page)["operation"] == live.operations[step]
        alive = [tensor for tensor in live.alive_at(step) if tensor.first is not None]
        assert rows_said(view) == len(alive)
        if alive:
            cells = view.locator("tr[data-row='0'] td").all_inner_texts()
            told = dict(zip(titles_of(view), cells, strict=True))
            assert (told["owner"], told["tensor"]) == (alive[0].owner, alive[0].name)
            assert told.get("scope", "") == alive[0].scope
    view.get_by_label("include what is always alive").check()
    assert rows_said(view) == len(live.alive_at(len(live.names) - 1))


def test_owners_in_reports_of_earlier_versions(opened: Open, visit: Visit) -> None:
    """They know neither labels nor scopes: there owners are told by paths and primitives."""
    *_, report = opened("memory")
    document = copy.deepcopy(report.to_dict())
    for held in document["liveness"]:
        del held["tensors"]["label"], held["tensors"]["scope"]
    page = visit.open(html.render_html_page([document]))
    page.click("[data-tab=memory]")
    view = page.locator("[data-view=memory]")
    assert "scope" not in titles_of(view)
    owners = view.locator("tr[data-row] td:first-child").all_inner_texts()
    assert owners
    tensors = report.liveness[0].tensors
    known = {tensor.path or tensor.operation for tensor in tensors}
    assert [owner for owner in owners if owner.partition(", ")[0] not in known] == []


def test_program_opens_with_the_keyboard_and_selects(opened: Open) -> None:
    page, view, report = opened("program")
    tree = view.get_by_role("treegrid")
    assert report.program.name in view.locator("[data-row='0']").inner_text()
    shown = int(tree.get_attribute("aria-rowcount") or 0)
    tree.press("Home")
    tree.press("ArrowLeft")
    assert tree.get_attribute("aria-rowcount") == "1"
    tree.press("ArrowRight")
    tree.press("*")
    assert int(tree.get_attribute("aria-rowcount") or 0) >= shown
    tree.press("ArrowDown")
    tree.press("Enter")
    assert selection(page)["name"] == report.program.children[0].name


def test_operations_add_up(opened: Open) -> None:
    page, view, report = opened("operations")
    operations_table(page)
    assert rows_said(view) == len(report.operations)
    view.get_by_label("Filter operations").fill("dot_general")
    found = [operation for operation in report.operations if "dot_general" in operation.name]
    assert rows_said(view) == len(found)
    share = sum(operation.cycles for operation in found) / (report.cycles * report.num_ipus)
    assert f"{format_percent(share)} of all IPUs' cycles" in view.locator("[data-sum]").inner_text()


def test_an_operation_says_who_calls_it_and_in_which_pass(opened: Open) -> None:
    page, view, report = opened("operations")
    operation = next(one for one in report.operations if one.direction == "backward")
    assert operation.call_path
    operations_table(page)
    view.locator(f"tr[data-row='{report.operations.index(operation)}']").click()
    said = view.locator(".tree-details")
    assert said.locator(".pass").inner_text() == "backward"
    assert operation.name in said.inner_text()
    frames = said.locator("[data-frame]")
    assert frames.evaluate_all("all => all.map(one => one.dataset.frame)") == list(
        operation.call_path
    )


@pytest.mark.exhaustive
def test_tensors_are_called_as_the_user_calls_them(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    page = visit.open(pages["pipeline"])
    page.click("[data-tab=liveness]")
    view = page.locator("[data-view=liveness]")
    live = reports["pipeline"].liveness[0]
    sums = [one for one in live.alive_at(live.worst) if one.path.endswith(": gradient sum")]
    view.get_by_label("Step", exact=True).fill(str(live.worst))
    view.get_by_label("Step", exact=True).press("Enter")
    assert sums
    view.get_by_label("Filter tensors").fill("gradient sum")
    rows = [row.locator("td").all_inner_texts() for row in view.locator("tr[data-row]").all()]
    told = [dict(zip(titles_of(view), row, strict=True)) for row in rows]
    assert rows_said(view) == len(sums)
    assert told  # the table draws what is in sight
    assert {(one["owner"], one["tensor"]) for one in told} <= {
        (one.owner, one.name) for one in sums
    }


def test_operations_go_in_groups(opened: Open) -> None:
    _, view, report = opened("operations")
    view.get_by_role("button", name="line", exact=True).first.click()
    lines = {operation.origin for operation in report.operations}
    assert rows_said(view) == len(lines)
    view.locator("tr[data-row='0']").click()
    totals = {
        line: sum(one.cycles for one in report.operations if one.origin == line) for line in lines
    }
    most = max(lines, key=lambda line: totals[line])
    assert rows_said(view) == sum(one.origin == most for one in report.operations)


def test_an_operation_that_is_selected_is_found_everywhere(opened: Open) -> None:
    page, view, report = opened("operations")
    operation = next(one for one in report.operations if one.origin)
    operations_table(page)
    view.locator(f"tr[data-row='{report.operations.index(operation)}']").click()
    assert selection(page)["origin"] == operation.origin
    assert view.locator("tr.selected").count() > 0
    page.click("[data-tab=program]")
    assert page.locator("[data-view=program] .is-linked.is-cursor").count() == 1
