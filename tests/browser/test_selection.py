"""What is selected: the very thing strongest, its line weaker, in the colours of the legend; and
the ways to select and to go back."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from playwright.sync_api import Page

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.presentation import html
from lowering import machine
from tests.browser.looking import Visit, frames, operations_table, pixels, selection, show, shown
from tests.ipujax.reporting import configured, struct


def rgba(tab: Page, variable: str) -> int:
    """A colour of the theme as a pixel of `pixels`."""
    colour = tab.evaluate(
        """name => {
          const probe = document.body.appendChild(document.createElement("span"));
          probe.style.color = `var(--${name})`;
          return getComputedStyle(probe).color;
        }""",
        variable,
    )
    red, green, blue = (int(part) for part in colour[4:-1].split(","))
    return (255 << 24) | (blue << 16) | (green << 8) | red


def test_an_operation_is_marked_more_than_its_line(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    operations = reports["small"].operations
    chosen = next(
        one for one in operations if sum(one.origin == other.origin for other in operations) > 2
    )
    view = operations_table(tab)
    view.locator(f"tr[data-row='{operations.index(chosen)}']").click()
    of_line = [other for other in operations if other.origin == chosen.origin]
    assert view.locator("tr.selected").count() == len(of_line)
    assert view.locator("tr.exact").count() == 1
    assert chosen.label in view.locator("tr.exact").inner_text()
    chip = tab.locator(".chip").inner_text()
    assert chosen.label in chip
    assert chosen.origin.rsplit("/", 1)[-1].split(" (")[0] in chip
    tree = show(tab, "program")
    assert 0 < tree.locator(".is-exact").count() < tree.locator(".is-linked").count()


def test_an_operation_is_told_from_others_of_its_name(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["pipeline"])
    operations = reports["pipeline"].operations
    ipu = 0
    named = collections.Counter((one.name, one.origin) for one in operations if one.ipu == ipu)
    alike = named.most_common(1)[0][0]
    chosen = next(one for one in operations if (one.name, one.origin, one.ipu) == (*alike, ipu))
    assert named[alike] > 1
    view = show(tab, "operations")
    view.get_by_role("button", name="operation and IPU").click()
    view.get_by_placeholder("Filter operations").fill(chosen.name)
    tab.evaluate("chosen => window.ipujax.store.select(chosen)", _patch(chosen))
    frames(tab)
    assert view.locator("tr.exact").count() == 1
    assert view.locator("tr.selected").count() > 1
    note = show(tab, "timeline").locator(".controls.below").inner_text()
    assert f"takes {_cycles(chosen.cycles)} cycles (outlined)" in note
    assert 0 < show(tab, "program").locator(".is-exact").count() < named[alike]


def _patch(operation: machine.OperationTotal) -> dict[str, Any]:
    """What selects it."""
    of_it = {"operation": operation.number, "name": operation.name, "origin": operation.origin}
    return {**of_it, "ipu": operation.ipu}


def _cycles(number: float) -> str:
    return f"{number:.0f}" if number < 1000 else f"{float(f'{number / 1000:.3g}'):g} k"


def test_a_clicked_step_selects_its_operation(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    show(tab, "timeline")
    canvas = tab.locator("canvas[data-chart=timeline]")
    box = canvas.bounding_box()
    assert box is not None
    canvas.focus()
    for _ in range(14):  # until steps are wide
        tab.keyboard.press("+")
    frames(tab)
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    chosen = selection(tab)
    operation = next(o for o in reports["small"].operations if o.number == chosen["operation"])
    assert (chosen["name"], chosen["origin"]) == (operation.name, operation.origin)
    for view in ("operations", "program"):
        said = show(tab, view).locator(".is-exact").inner_text()
        assert operation.label in said or operation.name in said, view


def test_reports_without_numbers_go_by_names(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    assert pages["small"]
    document = reports["small"].to_dict()
    del document["program"]["operation"]
    for one in document["operations"]:
        del one["number"], one["scope"]
    for node in document["steps"]["nodes"]:
        node.pop("operation", None)
    tab = visit.open(html.render_html_page([document]))
    operations_table(tab).locator("[data-row]").first.click()
    chosen = selection(tab)
    assert chosen["operation"] is None
    assert chosen["name"] == reports["small"].operations[0].name
    assert show(tab, "program").locator(".is-exact").count() == 1
    assert "(outlined)" in show(tab, "timeline").locator(".controls.below").inner_text()


def test_all_that_is_in_a_scope_is_selected(visit: Visit) -> None:
    configured(1)

    def block(x: Any, name: str) -> Any:
        with jax.named_scope(name):
            return jnp.tanh(x @ x)

    def blocks(x: Any) -> Any:
        return block(block(block(x, "one"), "one/inner"), "one1")

    report = ipu.compile(blocks).lower(struct(8, 8)).report()
    tab = visit.open(html.render_html_page([report.to_dict()]))
    operations_table(tab)
    tab.evaluate("() => window.ipujax.store.select({scope: 'one'})")
    frames(tab)
    marked = tab.locator("[data-view=operations] tr.selected")
    below = [one for one in report.operations if one.scope in ("one", "one/inner")]
    assert 0 < marked.count() == len(below) < len(report.operations)
    assert "all in" in tab.locator(".chip").inner_text()
    held, numbers = report.liveness[0], {one.number for one in below}
    alive = show(tab, "liveness").locator("tr.selected")
    for step in range(len(held.names)):
        tab.evaluate("step => window.ipujax.store.select({scope: 'one', step})", step)
        frames(tab)
        made = [
            held.operations[one.first or 0]
            for one in held.alive_at(step)
            if one.operation != "argument"
        ]
        assert alive.count() == sum(number in numbers for number in made)


def test_operations_of_two_reports_are_selected_together(visit: Visit) -> None:
    def steps(more: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for _ in range(more):
                x = jnp.sin(x)  # as many operations before it, so that its number is another
            return x @ x

        return run

    documents: list[dict[str, Any]] = []
    for more in (0, 3):
        configured(1)
        documents.append(ipu.compile(steps(more)).lower(struct(8, 8)).report().to_dict())
    numbers = [one["number"] for document in documents for one in document["operations"]]
    tab = visit.open(html.render_html_page(documents))
    operations_table(tab)
    product = tab.locator("[data-view=operations] tr", has_text="matmul")
    product.first.click()
    frames(tab)
    assert len(set(numbers)) > 1
    exact = tab.locator("[data-view=operations] tr.exact").all_inner_texts()
    assert len(exact) == 2
    assert all("matmul" in row for row in exact)


def test_selected_steps_keep_the_colours_of_their_phases(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["pipeline"])
    show(tab, "timeline").get_by_role("button", name="Fold parts").click()
    frames(tab)
    forward, backward = rgba(tab, "phase-fwd"), rgba(tab, "phase-bwd")
    plain = pixels(tab, "timeline")
    passes = {one.origin: {one.direction} for one in reports["pipeline"].operations}
    for one in reports["pipeline"].operations:
        passes[one.origin].add(one.direction)
    line = next(line for line, own in passes.items() if {"forward", "backward"} <= own)
    tab.evaluate("origin => window.ipujax.store.select({origin})", line)
    frames(tab)
    chosen = pixels(tab, "timeline")
    for colour in (forward, backward):
        assert 0 < (chosen == colour).sum() < (plain == colour).sum()
    for kind in ("inter_ipu", "remote", "sync"):
        assert not (chosen == rgba(tab, f"kind-{kind}")).any()


def _keyboard(tab: Page, keys: list[str]) -> None:
    tab.locator("canvas[data-chart=timeline]").focus()
    for key in keys:
        tab.keyboard.press(key)
    frames(tab)


@pytest.mark.parametrize(("view", "key"), [("memory", "tile"), ("liveness", "step")])
def test_charts_are_clicked_with_the_keyboard(
    pages: dict[str, Path], visit: Visit, view: str, key: str
) -> None:
    tab = visit.open(pages["small"])
    shown = show(tab, view)
    shown.locator("canvas[data-chart]").first.focus()
    tab.keyboard.press("Enter")
    assert selection(tab)[key] is not None
    assert selection(tab)["ipu"] == 0


def test_a_timeline_says_what_is_under_the_keyboards_cross(
    pages: dict[str, Path], visit: Visit
) -> None:
    tab = visit.open(pages["pipeline"])
    show(tab, "timeline")
    _keyboard(tab, ["ArrowDown", "Shift+ArrowRight"])
    said = tab.locator(".tooltip").inner_text()
    assert "stage" in said or "waits" in said
    assert "cycles" in said
    tab.locator("[data-tab=timeline]").focus()
    assert tab.locator(".tooltip").is_hidden()


def test_the_browser_goes_back_to_the_view_before(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    for view in ("memory", "timeline"):
        show(tab, view)
    for view in ("memory", "summary"):
        tab.go_back()
        assert shown(tab) == view
        assert tab.locator(f"[data-view={view}]").is_visible()


def test_costs_lead_to_where_they_show_best(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    cards = tab.locator("[data-cost]")
    places = {cards.nth(i).get_attribute("data-cost") for i in range(cards.count())}
    assert "schedule" in places
    for i in range(cards.count()):
        tab.click("[data-tab=summary]")
        cards.nth(i).click()
        assert shown(tab) == cards.nth(i).get_attribute("data-cost")


def test_boxes_for_numbers_keep_to_what_there_is(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    box = show(tab, "memory").get_by_label("Tile", exact=True)
    for typed, becomes in (("99999", "1471"), ("-3", "0"), ("", "0"), ("7", "7")):
        box.fill(typed)
        box.press("Enter")
        assert box.input_value() == becomes


def test_narrow_tables_scroll_beside_their_first_column(
    pages: dict[str, Path], visit: Visit
) -> None:
    tab = visit.open(pages["small"], width=400)
    view = operations_table(tab)
    cells: dict[str, Any] = view.locator(".table-scroll").evaluate(
        """box => {
          box.scrollLeft = 10000;
          const row = box.querySelector("tr[data-row='0']");
          const [edge, first, last] = [box, row.firstChild, row.lastChild].map(
            (node) => node.getBoundingClientRect());
          return {first: first.left - edge.left, beyond: last.right - edge.right};
        }"""
    )
    assert np.allclose(list(cells.values()), 0, atol=3)
