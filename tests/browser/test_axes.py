"""Axes of charts: they have titles and units, and no text is cut off or lies on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.looking import Painted, Visit, frames, painted_texts, show, watch_texts

CHARTS = {
    "memory": ("memory-tiles", {"bytes", "tile", "0"}),
    "liveness": ("liveness", {"bytes", "step", "tensors", "0"}),
    "schedule": ("schedule", {"tick", "cycles", "0"}),
    "timeline": ("timeline", {"cycles", "time"}),
}


def check(tab: Page, chart: str, titles: set[str]) -> None:
    """That the titles are there, and all texts can be read."""
    for texts in painted_texts(tab, chart):
        assert titles <= {text.text for text in texts}
        for i, text in enumerate(texts):
            covered = [other.text for other in texts[i + 1 :] if text.covers(other)]
            assert not covered, (chart, text.text, covered)
    sizes: list[list[float]] = tab.locator(f"canvas[data-chart='{chart}']").evaluate_all(
        "canvases => canvases.map(({clientWidth, clientHeight}) => [clientWidth, clientHeight])"
    )
    for texts, (width, height) in zip(painted_texts(tab, chart), sizes, strict=True):
        assert not [text for text in texts if is_cut(text, width, height)]


def is_cut(text: Painted, width: float, height: float) -> bool:
    return text.left < 0 or text.right > width + 1 or text.top < 0 or text.bottom > height + 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    "sample", ["resnet", "pipeline", pytest.param("wide", marks=pytest.mark.exhaustive)]
)
def test_charts_have_axes_and_their_texts_can_be_read(
    pages: dict[str, Path], visit: Visit, sample: str, width: int
) -> None:
    tab = visit.open(pages[sample], width=width)
    watch_texts(tab)
    for view, (chart, titles) in CHARTS.items():
        if tab.locator(f"[data-tab={view}]").count():
            show(tab, view)
            check(tab, chart, titles)


def test_memory_has_units_on_its_axis(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    watch_texts(tab)
    for view, unit in (("memory", " kB"), ("liveness", " MB")):
        show(tab, view)
        for texts in painted_texts(tab, CHARTS[view][0]):
            assert any(text.text.endswith(unit) and text.right < 60 for text in texts), view


def test_notes_on_a_curve_go_out_of_each_others_way(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    watch_texts(tab)
    view = show(tab, "liveness")
    worst: Any = tab.evaluate("window.ipujax.reports[0].liveness[0].worst")
    view.get_by_label("Step", exact=True).fill(str(worst + 1))
    view.get_by_label("Step", exact=True).press("Enter")
    frames(tab)
    (texts,) = painted_texts(tab, "liveness")
    notes = [text.text for text in texts if "step " in text.text]
    assert [note.split(":")[0] for note in notes] == [f"worst step {worst}", f"step {worst + 1}"]
    check(tab, *CHARTS["liveness"])
