"""Pages of reports in a real browser: every view renders without a word on the console, and what is
selected in one is selected in the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from playwright.sync_api import Page

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.presentation.html import render_html_page, render_notebook_iframe
from tests.browser.looking import (
    Visit,
    colours,
    frames,
    operations_table,
    pixels,
    selection,
    show,
    shown,
    views_of,
)
from tests.browser.samples import IPUS, TICKS
from tests.ipujax.reporting import configured, struct, training

VIEWS = [
    "summary",
    "memory",
    "liveness",
    "program",
    "operations",
    "roofline",
    "tiles",
    "source",
    "timeline",
    "schedule",
    "host",
]
CHARTS = {
    "memory": "memory-tiles",
    "liveness": "liveness",
    "roofline": "roofline",
    "tiles": "tile-activity",
    "timeline": "timeline",
    "schedule": "schedule",
}
TABLES = ("memory", "liveness", "program", "operations", "roofline", "tiles", "source")


@pytest.mark.sampled(1)
def test_every_view_renders(sample: str, window: dict[str, Any], pages: Any, visit: Visit) -> None:
    tab = visit.open(pages[sample], **window)
    pipelined = sample in ("pipeline", "wide")
    views = [view for view in VIEWS if pipelined or view != "schedule"]
    assert views_of(tab) == views
    for view in views:
        shown = show(tab, view)
        assert len(shown.inner_text()) > 20, view
        if view in CHARTS:
            assert colours(tab, CHARTS[view]) >= 3, view
        if view in TABLES:
            assert shown.locator("[data-row]").count() > 0, view
        # Nothing sticks out of the window to the right.
        assert tab.evaluate("document.documentElement.scrollWidth") <= window["width"], view


@pytest.fixture(
    params=[
        "small",
        "pipeline",
        pytest.param("wide", marks=pytest.mark.exhaustive),
        pytest.param("deep", marks=pytest.mark.exhaustive),
    ]
)
def sample(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[{"width": 1280}, {"width": 400, "dark": True}], ids=["wide", "narrow-dark"])
def window(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def test_an_operation_is_selected_everywhere(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    row = operations_table(tab).locator("[data-row]").first
    row.click()
    chosen = selection(tab)
    # The first row is the most expensive line's most expensive operation.
    assert chosen["origin"] == reports["small"].operations[0].origin
    assert chosen["ipu"] == 0
    for view in ("program", "liveness"):
        marked = show(tab, view).locator("[data-row].linked, [data-row][aria-selected=true]")
        assert marked.count() > 0, view
    plain = visit.open(pages["small"])
    show(plain, "timeline")
    show(tab, "timeline")
    assert (pixels(tab, "timeline") != pixels(plain, "timeline")).any()  # others are dimmed
    tab.keyboard.press("Escape")
    assert not any(selection(tab).values())


def test_a_step_of_the_timeline_can_be_clicked(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    show(tab, "timeline")
    box = tab.locator("canvas[data-chart=timeline]").bounding_box()
    assert box is not None
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert selection(tab)["ipu"] == 0
    assert selection(tab)["name"]


def test_a_tick_of_the_schedule_can_be_clicked(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    show(tab, "schedule")
    box = tab.locator("canvas[data-chart=schedule]").bounding_box()
    assert box is not None
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert selection(tab)["tick"] in range(TICKS)
    assert selection(tab)["ipu"] in range(IPUS)


def test_what_is_alive_follows_the_step(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    shown = show(tab, "liveness")
    liveness = reports["small"].liveness[0]
    for step in (0, liveness.worst):
        tab.evaluate("step => window.ipujax.store.select({ipu: 0, step})", step)
        frames(tab)
        alive = liveness.alive_at(step)
        rows = [tensor for tensor in alive if tensor.first is not None]
        assert (
            f"{len(rows)} rows" in shown.inner_text() or f"{len(alive)} rows" in shown.inner_text()
        )


def test_charts_zoom_by_keyboard(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    show(tab, "timeline")
    before = pixels(tab, "timeline")
    tab.locator("canvas[data-chart=timeline]").focus()
    for _ in range(4):
        tab.keyboard.press("+")
    frames(tab)
    assert (pixels(tab, "timeline") != before).any()


def test_two_reports_stand_side_by_side(
    reports: dict[str, Report], pages: dict[str, Path], visit: Visit, tmp_path: Path
) -> None:
    assert pages["small"]
    configured(4)
    train, arguments = training(4, 8)
    other = ipu.compile(train).lower(*arguments).report()
    path = tmp_path / "both.html"
    path.write_text(
        render_html_page([reports["small"].to_dict(), other.to_dict()]), encoding="utf-8"
    )
    tab = visit.open(path)
    assert views_of(tab) == ["compare", *VIEWS]
    assert "cycles" in show(tab, "compare").inner_text()
    show(tab, "memory")
    assert tab.locator("[data-view=memory]").count() == 2


def test_a_notebook_shows_the_page_in_a_sandbox(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    assert pages["small"]
    tab = visit.tab()
    html = reports["small"]._repr_html_()
    assert html == render_notebook_iframe([reports["small"].to_dict()])
    tab.set_content(f"<!doctype html><body>{html}</body>")
    frame = tab.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for()
    frame.locator("[data-tab=timeline]").click()
    frame.locator("canvas[data-chart=timeline]").wait_for()


def test_names_of_the_user_are_texts(visit: Visit, tmp_path: Path) -> None:
    name = "<script>document.title = 'broken into'</script><img src=x onerror=alert(1)>"
    configured(1)
    with_name = ipu.compile(lambda x: jnp.sin(x) @ x, name=name)
    report = with_name.lower(struct(8, 8)).report()
    path = tmp_path / "named.html"
    report.to_html(path)
    tab = visit.open(path)
    for view in views_of(tab):
        show(tab, view)
    assert name in tab.locator("h1").inner_text()
    assert tab.title() == f"{name} - ipujax report"
    assert tab.locator("img").count() == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_can_be_read(pages: dict[str, Path], visit: Visit, dark: bool) -> None:
    """WCAG's contrast of 4.5 to 1, for every text that is on the page."""
    tab = visit.open(pages["pipeline"], dark=dark)
    for view in views_of(tab):
        show(tab, view)
        for text, ink, paper in _inks(tab, view):
            assert _contrast(ink, paper) >= 4.5, (view, text, ink, paper)


def _inks(tab: Page, view: str) -> list[Any]:
    """Texts, their colours and those behind them."""
    return tab.evaluate(
        """view => {
          const parse = colour => {  // "rgb(0 to 255 ...)", or "color(srgb 0 to 1 ...)"
            const scale = colour.startsWith("color") ? 255 : 1;
            const numbers = (colour.match(/[\\d.]+/g) ?? []).map(Number);
            return numbers.map((number, i) => i < 3 ? number * scale : number);
          };
          const behind = node => {
            for (; node; node = node.parentElement) {
              const [r, g, b, a = 1] = parse(getComputedStyle(node).backgroundColor);
              if (a === 1) return [r, g, b];
            }
            return [255, 255, 255];
          };
          const root = document.querySelector(`[data-view=${view}]`);
          const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
          const found = [];
          while (texts.nextNode() && found.length < 2000) {
            const node = texts.currentNode.parentElement;
            const text = texts.currentNode.textContent.trim();
            if (!text || !node.checkVisibility() || node.closest("[disabled]")) continue;
            const ink = parse(getComputedStyle(node).color).slice(0, 3);
            found.push([text, ink, behind(node)]);
          }
          return found;
        }""",
        view,
    )


def _contrast(one: list[float], other: list[float]) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(rgb: list[float]) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    share = np.array(rgb) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_digits_reach_the_first_nine_views(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    assert len(VIEWS) == 11
    for digit, view in enumerate(VIEWS[:9], 1):
        tab.keyboard.press(str(digit))
        assert shown(tab) == view
    tab.keyboard.press("0")
    assert shown(tab) == VIEWS[8]
    tab.keyboard.press("?")
    assert "go to one of the first nine views" in tab.get_by_role("dialog").inner_text()
