"""The roofline: dots below roofs, names that do not overlap, and what is chosen with them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import (
    Visit,
    colours,
    frames,
    painted_texts,
    pixels,
    selection,
    show,
    watch_texts,
)


@pytest.mark.parametrize("window", [{"width": 1280}, {"width": 390, "dark": True}])
def test_roofs_and_the_largest_dots_have_names_that_overlap_nothing(
    pages: dict[str, Path], visit: Visit, window: dict[str, int]
) -> None:
    tab = visit.open(pages["resnet"], **window)
    watch_texts(tab)
    show(tab, "roofline")
    (painted,) = painted_texts(tab, "roofline")
    texts = [text.text for text in painted]
    assert "AMP float16, sums in float32: 125 TFLOP/s" in texts
    assert "tile memory: 47 TB/s" in texts
    assert "FLOPs per byte on tiles" in texts
    assert any(text.startswith("conv 3x3 16 -> 16") for text in texts)
    named = [one for one in painted if ":" in one.text or one.text.startswith("conv")]
    for i, one in enumerate(named):
        assert not any(one.covers(other) for other in named[:i]), one
    assert colours(tab, "roofline") > 4


def test_a_dot_chooses_its_operation(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["resnet"])
    view = show(tab, "roofline")
    roofline = reports["resnet"].roofline
    assert roofline is not None
    view.locator("[data-table=roofline] tr[data-row='0']").click()
    frames(tab)
    chosen = selection(tab)
    largest = max(roofline.points, key=lambda point: point.cycles)
    labels = {point.number: point.label for point in roofline.points}
    assert labels[chosen["operation"]] == largest.label
    assert "of its lowest roof, exchange" in view.locator(".tree-details").inner_text()
    before = pixels(tab, "roofline").copy()
    tab.keyboard.press("Escape")
    frames(tab)
    assert (pixels(tab, "roofline") != before).sum() > 100  # its dot had a rim, others were paler


def test_hovering_and_clicking_find_the_dot_under_the_pointer(
    pages: dict[str, Path], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    show(tab, "roofline")
    chart = tab.locator("canvas[data-chart=roofline]")
    box = chart.bounding_box()
    assert box is not None
    for y in range(4, int(box["height"]), 24):
        for x in range(80, int(box["width"]), 24):
            chart.hover(position={"x": x, "y": y})
            if tab.locator(".tooltip:not([hidden])").count():
                hint = tab.locator(".tooltip").inner_text()
                assert "of its lowest roof" in hint
                assert "FLOPs per byte on tiles" in hint
                chart.click(position={"x": x, "y": y})
                assert selection(tab)["operation"] is not None
                return
    pytest.fail("no dot has a hint")


def test_the_other_memory_moves_the_dots(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["resnet"])
    watch_texts(tab)
    view = show(tab, "roofline")
    view.get_by_role("button", name="exchange", exact=True).click()
    frames(tab)
    (painted,) = painted_texts(tab, "roofline")
    texts = {text.text for text in painted}
    assert {"FLOPs per byte exchanged", "exchange: 7.83 TB/s"} <= texts


def test_tables_say_the_same(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["resnet"])
    view = show(tab, "roofline")
    roofline = reports["resnet"].roofline
    assert roofline is not None
    row = view.locator("[data-table=roofline] tr[data-row='0'] td").all_inner_texts()
    largest = max(roofline.points, key=lambda point: point.cycles)
    assert largest.label in row[0]
    assert f"{largest.share_of_roof:.1%}" in row
    roofs = view.locator("[data-table=roofs] tr[data-row] td:first-child").all_inner_texts()
    assert roofs == [roof.title for roof in roofline.roofs]


def test_without_a_roofline_there_is_no_view(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    assert pages["small"]
    document = reports["small"].to_dict() | {"roofline": None}
    tab = visit.open(html.render_html_page([document]))
    assert tab.locator("[data-tab=roofline]").count() == 0


def test_parts_have_the_tints_that_they_have_in_the_timeline(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    """Also where the first part has no floating-point operations, and so no dot."""
    assert pages["resnet"]
    document = reports["resnet"].to_dict()
    computing = [one for one in document["operations"] if one["flops"] and one["cycles"]]
    kept = ["block2" not in operation["scope"] for operation in computing]
    assert not all(kept)
    points = document["roofline"]["points"]
    document["roofline"]["points"] = {
        key: list(itertools.compress(column, kept)) for key, column in points.items()
    }
    for operation in document["operations"]:
        if "block2" in operation["scope"]:
            operation["flops"] = 0.0
    view = show(visit.open(html.render_html_page([document])), "roofline")
    swatches = view.locator(".legend .swatch").evaluate_all(
        "all => all.map(one => [one.parentElement.textContent, one.style.background])"
    )
    scopes = (operation["scope"].split("/") for operation in document["operations"])
    names = list(dict.fromkeys(scope[1] for scope in scopes if len(scope) > 1))
    expected = [[name, f"var(--part-{number})"] for number, name in enumerate(names)]
    assert swatches == expected[1:]
