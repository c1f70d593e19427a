"""The timeline: lanes by the parts of the model, what is said of them, and measuring."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Locator, Page

from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import (
    Visit,
    frames,
    painted_texts,
    pixels,
    selection,
    show,
    watch_texts,
)
from tests.browser.samples import MICRO_BATCHES

UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
LEFT = 52  # pixels of the chart that are not for time


@pytest.fixture
def timeline(pages: dict[str, Path], visit: Visit) -> Page:
    return opened(visit, pages["resnet"])


@pytest.fixture
def pipelined(pages: dict[str, Path], visit: Visit) -> Page:
    return opened(visit, pages["pipeline"])


def opened(visit: Visit, path: Path | str, width: int = 1280) -> Page:
    """The timeline of a page, of which all texts are known."""
    tab = visit.open(path, width=width)
    watch_texts(tab)
    show(tab, "timeline")
    return tab


def said(tab: Page) -> list[str]:
    (texts,) = painted_texts(tab, "timeline")
    return [text.text for text in texts]


def place(tab: Page, text: str, number: int = 0) -> tuple[float, float]:
    """The middle of a text of the timeline, in the window."""
    (texts,) = painted_texts(tab, "timeline")
    found = [one for one in texts if one.text == text][number]
    box = canvas_box(tab)
    return box["x"] + (found.left + found.right) / 2, box["y"] + (found.top + found.bottom) / 2


def canvas_box(tab: Page, chart: str = "timeline") -> FloatRect:
    box = tab.locator(f"canvas[data-chart={chart}]").bounding_box()
    assert box is not None
    return box


def hovered(tab: Page, x: float, y: float) -> list[str]:
    tab.mouse.move(x, y)
    return tab.locator(".tooltip").inner_text().split("\n")


def drag(tab: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    tab.mouse.move(*start)
    tab.mouse.down()
    tab.mouse.move(*end, steps=4)
    tab.mouse.up()
    frames(tab)


def cycles_in(text: str) -> float:
    """The first number of cycles of a text, such as 1.5 M."""
    match = re.search(r"([\d.]+) ?([kMG]?)(?: cycles|,|$)", text)
    assert match, text
    return float(match[1]) * UNITS[match[2]]


def measured_by_kind(tab: Page) -> dict[str, float]:
    kinds = tab.locator("[data-measured] [data-kind]")
    found: dict[str, float] = {}
    for i in range(kinds.count()):
        kind = kinds.nth(i).get_attribute("data-kind") or ""
        found[kind] = cycles_in(kinds.nth(i).inner_text())
    return found


def test_lanes_show_the_parts_of_the_model(timeline: Page) -> None:
    (texts,) = painted_texts(timeline, "timeline")
    rows: dict[str, float] = {}
    for name in ("forward", "train_step", "block0"):
        tops = {round(text.top) for text in texts if text.text == name}
        assert len(tops) == 1, name
        rows[name] = tops.pop()
    assert rows["forward"] < rows["train_step"] < rows["block0"]
    x, y = place(timeline, "block1")
    timeline.mouse.move(x, y)
    timeline.mouse.wheel(0, -600)
    frames(timeline)
    inner = [text for text in painted_texts(timeline, "timeline")[0] if text.text == "conv0"]
    assert inner
    assert inner[0].top > rows["block0"]


def test_parts_fold_and_stay_so(pages: dict[str, Path], timeline: Page) -> None:
    high = canvas_box(timeline)["height"]
    timeline.get_by_role("button", name="Fold parts").click()
    frames(timeline)
    assert "train_step" not in said(timeline)
    assert canvas_box(timeline)["height"] < high
    timeline.reload()
    timeline.wait_for_selector("html[data-ready=true]")
    view = show(timeline, "timeline")
    assert view.get_by_role("button", name="Show parts").is_visible()
    timeline.locator("canvas[data-chart=timeline]").press("b")
    frames(timeline)
    assert canvas_box(timeline)["height"] == high


def test_hovering_says_the_biggest_thing_first(timeline: Page, reports: dict[str, Report]) -> None:
    x, y = place(timeline, "block1")
    lines = hovered(timeline, x, y)
    forward = sum(one.cycles for one in reports["resnet"].operations if one.direction == "forward")
    block = sum(
        one.cycles
        for one in reports["resnet"].operations
        if one.direction == "forward" and one.scope.startswith("train_step/block1")
    )
    assert lines[0].startswith("forward, ")
    assert cycles_in(lines[0].partition(", ")[2]) == pytest.approx(forward, rel=0.01)
    assert lines[1].startswith("train_step > block1, ")
    assert cycles_in(lines[1].partition(", ")[2]) == pytest.approx(block, rel=0.01)
    steps = hovered(timeline, x, canvas_box(timeline)["y"] + canvas_box(timeline)["height"] - 50)
    assert steps[0].startswith("forward, ")
    assert steps[1].startswith("train_step > block1")
    assert any(line.startswith("its step ") for line in steps)
    assert steps[-1].startswith("networks.py:")


def test_hovering_a_pipeline_says_stage_pass_and_micro_batch_first(
    pipelined: Page, reports: dict[str, Report]
) -> None:
    pipeline = reports["pipeline"].pipeline
    assert pipeline is not None
    title = hovered(pipelined, *place(pipelined, "7", 0))[0]
    match = re.fullmatch(r"stage (\d+) (forward|backward), micro-batch 7, (.*) cycles", title)
    assert match, title
    task = int(match[1]), {"forward": "fwd", "backward": "bwd"}[match[2]]
    assert cycles_in(match[3]) == pytest.approx(pipeline.stage_cycles[task], rel=0.01)
    top = hovered(pipelined, place(pipelined, "7")[0], canvas_box(pipelined)["y"] + 85)
    assert top[0] == title


def test_micro_batches_are_told_wherever_they_fit(pipelined: Page) -> None:
    (texts,) = painted_texts(pipelined, "timeline")
    for ipu in range(4):
        middle = next(text for text in texts if text.text == f"IPU {ipu}").top
        row = {text.text for text in texts if abs(text.top - middle) < 50}
        assert {str(number) for number in range(MICRO_BATCHES)} <= row


def test_dragging_measures_what_ipus_do(pipelined: Page, reports: dict[str, Report]) -> None:
    report = reports["pipeline"]
    box = canvas_box(pipelined)
    y = box["y"] + 10
    drag(pipelined, (box["x"] + LEFT, y), (box["x"] + box["width"] - 1, y))
    found = measured_by_kind(pipelined)
    for kind, busy in report.busy_cycles.items():
        if sum(busy):
            assert found[kind] == pytest.approx(sum(busy), rel=0.01), kind
    waiting = report.cycles * report.num_ipus - sum(map(sum, report.busy_cycles.values()))
    assert found["waiting"] == pytest.approx(waiting, rel=0.01)
    drag(pipelined, (box["x"] + 300, y), (box["x"] + 500, y))
    part = measured_by_kind(pipelined)
    assert 0 < part["compute"] < found["compute"]
    length = cycles_in(pipelined.locator("[data-measured] strong").inner_text())
    assert sum(part.values()) == pytest.approx(length * report.num_ipus, rel=0.02)


def test_measuring_keeps_to_beginnings_and_ends(pipelined: Page) -> None:
    title = hovered(pipelined, *place(pipelined, "12"))[0]
    x, y = place(pipelined, "12")
    ends: list[float] = []
    for direction in (-1, 1):
        at = x
        while hovered(pipelined, at, y)[0] == title:
            at += direction
        ends.append(at)
    drag(pipelined, (ends[0], y), (ends[1], y))
    length = pipelined.locator("[data-measured] strong").inner_text()
    assert cycles_in(length) == cycles_in(title.split(", ")[-1])


def test_loops_are_measured_without_being_expanded(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = opened(visit, pages["small"])
    tab.get_by_role("button", name="All steps").click()
    frames(tab)
    box = canvas_box(tab)
    left, y = box["x"] + LEFT, box["y"] + 8
    drag(tab, (left, y), (left + (box["width"] - LEFT) / 2, y))
    busy = {kind: sum(own) for kind, own in reports["small"].busy_cycles.items() if sum(own)}
    found = measured_by_kind(tab)
    for kind, cycles in busy.items():
        assert found[kind] == pytest.approx(cycles / 2, rel=0.02), kind


def test_the_keyboard_measures_and_zooms(timeline: Page) -> None:
    canvas = timeline.locator("canvas[data-chart=timeline]")
    for key in ("m", *["Shift+ArrowRight"] * 10, "m"):
        canvas.press(key)
    frames(timeline)
    length = timeline.locator("[data-measured] strong").inner_text()
    assert cycles_in(length) > 0
    whole = pixels(timeline, "timeline")
    canvas.press("z")
    frames(timeline)
    assert (pixels(timeline, "timeline") != whole).any()
    timeline.evaluate("window.ipujax.store.select({ipu: 0})")
    canvas.press("Escape")
    assert timeline.locator("[data-measured]").count() == 0
    assert selection(timeline)["ipu"] == 0  # the next Escape takes that
    canvas.press("Escape")
    assert selection(timeline)["ipu"] is None


def test_dragging_the_strip_zooms_and_with_shift_the_lanes_move(timeline: Page) -> None:
    strip = canvas_box(timeline, "timeline-overview")
    y = strip["y"] + 20
    drag(timeline, (strip["x"] + 200, y), (strip["x"] + 300, y))
    zoomed = said(timeline)
    assert "0" not in zoomed  # of the axis
    assert timeline.locator("[data-measured]").count() == 0
    box = canvas_box(timeline)
    timeline.keyboard.down("Shift")
    drag(timeline, (box["x"] + 500, box["y"] + 10), (box["x"] + 300, box["y"] + 10))
    timeline.keyboard.up("Shift")
    assert said(timeline) != zoomed
    assert timeline.locator("[data-measured]").count() == 0


def test_a_part_is_selected_as_a_scope(timeline: Page) -> None:
    timeline.mouse.click(*place(timeline, "block1"))
    assert selection(timeline)["scope"] == "train_step/block1"
    assert "cycles" in timeline.locator("[data-view=timeline] .below").inner_text()
    timeline.keyboard.press("Escape")
    x, y = place(timeline, "block1")
    timeline.mouse.move(x, y)
    timeline.mouse.wheel(0, -900)
    frames(timeline)
    x, y = place(timeline, next(text for text in said(timeline) if text.startswith("conv 3x3")))
    timeline.mouse.click(x, y)
    assert selection(timeline)["operation"] is not None


def test_reports_of_earlier_versions_have_lanes_without_parts(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, tmp_path: Path
) -> None:
    assert pages["resnet"]
    document = reports["resnet"].to_dict()
    for operation in document["operations"]:
        for key in ("number", "direction", "scope", "label"):
            operation.pop(key, None)
    for node in document["steps"]["nodes"]:
        node.pop("operation", None)
    path = tmp_path / "earlier.html"
    path.write_text(html.render_html_page([document]), encoding="utf-8")
    tab = opened(visit, path)
    assert tab.get_by_role("button", name=re.compile("parts")).count() == 0
    x, y = canvas_box(tab)["x"] + 400, canvas_box(tab)["y"] + 20
    lines = hovered(tab, x, y)
    assert len(lines) == 3
    tab.mouse.click(x, y)
    assert selection(tab)["name"]


@pytest.mark.parametrize(
    "sample",
    [
        "resnet",
        "pipeline",
        pytest.param("wide", marks=pytest.mark.exhaustive),
        pytest.param("deep", marks=pytest.mark.exhaustive),
    ],
)
def test_painting_does_not_grow_with_the_steps(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit, sample: str
) -> None:
    tab = visit.open(pages[sample])
    assert pages[sample].stat().st_size < 1e6
    tab.evaluate(
        """() => {
          const pen = CanvasRenderingContext2D.prototype;
          const { fillRect } = pen;
          window.rectangles = 0;
          pen.fillRect = function (...where) {
            if (this.canvas.dataset.chart === "timeline") window.rectangles++;
            fillRect.apply(this, where);
          };
        }"""
    )
    show(tab, "timeline")
    painted = tab.evaluate("window.rectangles")
    # At most one box for each two pixels of a row, and each again in another shade.
    rows = 6 * reports[sample].num_ipus
    assert 0 < painted < rows * 1280


def opacity(button: Locator) -> float:
    return float(button.evaluate("one => getComputedStyle(one).opacity"))


def test_a_loop_opens_at_its_first_step_and_shows_others(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = opened(visit, pages["looped"])
    controls = tab.locator(".iterations")
    status = controls.get_by_role("status")
    previous, following, everything = controls.get_by_role("button").all()
    assert status.inner_text() == "step 1 of 200"
    assert previous.is_disabled()
    assert opacity(previous) < opacity(following) == 1
    assert {"forward", "backward"} <= set(said(tab))
    following.click()
    frames(tab)
    assert status.inner_text() == "step 2 of 200"
    assert selection(tab)["iteration"] == 2
    assert "iteration=2" in tab.url
    tab.locator("canvas[data-chart=timeline]").focus()
    tab.keyboard.press("[")
    frames(tab)
    assert status.inner_text() == "step 1 of 200"
    following.click()
    tab.locator("canvas[data-chart=timeline]").focus()
    tab.keyboard.press("0")
    frames(tab)
    assert selection(tab)["iteration"] is None
    assert "iteration" not in tab.url

    everything.click()
    frames(tab)
    assert status.inner_text() == "steps 1 to 200 of 200"
    assert any(re.fullmatch(r"200 steps of [\d.]+ k cycles", text) for text in said(tab))
    assert previous.is_disabled()
    assert following.is_disabled()


def test_the_address_has_the_step_of_a_loop(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["looped"], at="#timeline?iteration=200")
    frames(tab)
    assert tab.locator(".iterations").get_by_role("status").inner_text() == "step 200 of 200"
    beyond = visit.open(pages["looped"], at="#timeline?iteration=4000")
    frames(beyond)
    assert beyond.locator(".iterations").get_by_role("status").inner_text() == "step 200 of 200"


def test_a_program_without_a_loop_has_no_steps_of_one(timeline: Page) -> None:
    assert not timeline.locator(".iterations").count()


def test_narrow_neighbours_share_a_name_until_there_is_room(
    pages: dict[str, Path], visit: Visit
) -> None:
    tab = opened(visit, pages["layered"])
    texts = set(said(tab))
    assert texts & {"layer0\u20132", "0\u20132"}
    assert not texts & {"layer0", "layer1", "layer2"}
    for _ in range(5):
        tab.get_by_role("button", name="Zoom in").first.click()
    frames(tab)
    assert set(said(tab)) & {f"layer{number}" for number in range(6)}


def test_a_scope_has_one_colour_in_both_passes(pages: dict[str, Path], visit: Visit) -> None:
    tab = opened(visit, pages["looped"])
    names = ["first", "second"]
    by_pass = {}
    for number in (0, 1):  # the forward and the backward pass
        by_pass[number] = [colour_behind(tab, name, number) for name in names]
    assert by_pass[0] == by_pass[1]
    assert len(set(by_pass[0])) == 2


def colour_behind(tab: Page, text: str, number: int) -> int:
    """The colour of the band that a text stands in: just above the text."""
    (texts,) = painted_texts(tab, "timeline")
    one = [text_ for text_ in texts if text_.text == text][number]
    box = canvas_box(tab)
    image = pixels(tab, "timeline").reshape(-1, round(box["width"]))
    return int(image[round(one.top) - 3, round((one.left + one.right) / 2)])
