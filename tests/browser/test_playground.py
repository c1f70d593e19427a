"""The playground of schedules, as someone uses it: pointer, keyboard, address, narrow and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ipujax import schedules
from ipujax.report import Report
from tests.browser.looking import Visit, colours, frames
from tests.browser.samples import SAMPLES
from tests.browser.test_accessibility import OTHERWISE_NAMED, UNREACHABLE


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    schedules.playground(path)
    return path


@pytest.fixture(scope="module")
def own_times(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """The playground of a report with a pipeline."""
    path, report = tmp_path_factory.mktemp("playground") / "own.html", SAMPLES["pipeline"]()
    report.to_playground(path)
    return path, report


def figures(tab: Page, schedule: str) -> list[str]:
    """The numbers of a schedule's card: time, idle share, memory, transfers."""
    return tab.locator(f"[data-schedule={schedule}] .figure-value").all_inner_texts()


def slide(tab: Page, name: str, value: float) -> None:
    tab.locator(f"#slider-{name}").fill(str(value))
    frames(tab)


def asked(tab: Page) -> str:
    return tab.evaluate("() => location.hash")


def test_sliders_change_numbers_grids_and_address(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground)
    assert figures(tab, "one_f_one_b") == ["33", "27.3%", "4", "6"]
    assert figures(tab, "zero_bubble_h1") == ["27", "11.1%", "4", "6"]
    assert colours(tab, "zero_bubble_h1") > 4
    slide(tab, "microBatches", 16)
    assert figures(tab, "gpipe") == ["57", "15.8%", "16", "6"]
    assert "microBatches=16" in asked(tab)
    slide(tab, "memory", 5)
    expect(tab.locator("[data-schedule=gpipe]")).to_contain_text("needs memory for 16")
    again = visit.open(playground, at=asked(tab))
    assert figures(again, "gpipe") == ["57", "15.8%", "16", "6"]
    expect(again.locator("[data-schedule=gpipe]")).to_contain_text("has it for 5")


def test_cards_say_what_is_proven(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground, at="#schedules=zero_bubble_h1")
    card = tab.locator("[data-schedule=zero_bubble_h1]")
    expect(card).to_contain_text("by the formula (p \N{MINUS SIGN} 1) (F + B \N{MINUS SIGN} W) = 3")
    expect(card).to_contain_text("proven optimal: with memory for 4 micro-batches")
    slide(tab, "memory", 2)
    expect(card).to_contain_text("needs memory for 4 micro-batches, and has it for 2")
    expect(card).to_contain_text("the shortest order takes 41, as is proven")
    slide(tab, "microBatches", 20)
    expect(card).to_contain_text("takes less than 63")
    slide(tab, "transfer", 1)
    expect(card).not_to_contain_text("by the formula")


def test_schedules_are_chosen_and_closed(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground, at="#schedules=one_f_one_b")
    assert tab.locator(".card").count() == 1
    tab.get_by_label("Looped BFS").check()
    assert figures(tab, "looped_bfs") == ["28.5", "15.8%", "8", "14"]
    tab.get_by_label("Close 1F1B").click()
    assert tab.locator(".card").count() == 1
    assert asked(tab).endswith("schedules=looped_bfs")


def test_numbers_that_a_schedule_does_not_have_are_mended(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground, at="#microBatches=9&schedules=grouped")
    card = tab.locator("[data-schedule=grouped]")
    expect(card).to_contain_text("must be a multiple of 8")
    card.get_by_role("button", name="16 micro-batches").click()
    assert figures(tab, "grouped")[0] == "57"


def test_the_pointer_tells_why_a_task_waits(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground, at="#schedules=one_f_one_b&transfer=0.5")
    canvas = tab.locator("canvas[data-chart=one_f_one_b]")
    box = canvas.bounding_box()
    assert box
    tooltip = tab.locator(".tooltip")
    # Of 37 units of time, IPU 0 is idle from 4 on, until what comes back at 11.5 has travelled.
    canvas.hover(position={"x": 46 + (box["width"] - 52) * 8 / 37, "y": 12})
    expect(tooltip).to_contain_text("IPU 0 waits for")
    expect(tooltip).to_contain_text("waits 9 for B 0 on IPU 1, which ends at 12.5, and takes 0.5")
    canvas.hover(position={"x": 47, "y": 12})
    expect(tooltip).to_contain_text("the first task")


def test_the_keyboard_goes_from_task_to_cause(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground, at="#schedules=one_f_one_b")
    tab.locator("canvas[data-chart=one_f_one_b]").focus()
    told = tab.locator("[aria-live=polite]")
    tab.keyboard.press("End")
    expect(told).to_contain_text("backward of micro-batch 7; stage 0, IPU 0, from 31 to 33")
    tab.keyboard.press("Enter")
    expect(told).to_contain_text("stage 1, IPU 1, from 29 to 31")
    tab.keyboard.press("ArrowLeft")
    expect(told).to_contain_text("backward of micro-batch 6; stage 1, IPU 1")
    tab.keyboard.press("ArrowDown")
    expect(told).to_contain_text("IPU 2")


def test_exercises_set_up_the_page_and_hide_answers(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground)
    assert tab.locator(".exercises details[open]").count() == 0
    for link in tab.get_by_text("Set it up").all():
        link.click()
        frames(tab)
        assert tab.locator(".card").count() in (1, 2, 3)
        assert tab.locator(".card .figure-value").first.is_visible()
        assert asked(tab) == link.get_attribute("href")


def test_a_report_opens_it_with_its_own_times(visit: Visit, own_times: tuple[Path, Report]) -> None:
    path, report = own_times
    pipeline = report.pipeline
    assert pipeline
    tab = visit.open(path)
    expect(tab.locator("main")).to_contain_text("the machine model's times of its stages")
    settings = tab.evaluate("() => playground.page.outcome('one_f_one_b').settings")
    assert settings["stages"] == pipeline.stages
    assert settings["microBatches"] == pipeline.micro_batches
    unit = {"ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[settings["unit"]] * report.target.clock_hz
    for stage in range(pipeline.stages):
        forward = settings["forward"][stage] * unit
        assert forward == pytest.approx(pipeline.stage_cycles[stage, "fwd"])
        backward = settings["backward"][stage] * unit
        assert backward == pytest.approx(pipeline.stage_cycles[stage, "bwd"])
    assert tab.locator("#slider-stages").is_disabled()
    tab.get_by_role("button", name="equal").click()
    assert tab.locator("#slider-stages").is_enabled()
    assert "times=equal" in asked(tab)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_usable_at_any_width(visit: Visit, playground: Path, width: int, dark: bool) -> None:
    tab = visit.open(playground, width=width, dark=dark)
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
    assert colours(tab, "one_f_one_b") > 4
    assert tab.evaluate(OTHERWISE_NAMED) == []
    assert tab.evaluate(UNREACHABLE) == []


def test_wrong_addresses_do_no_harm(visit: Visit, playground: Path) -> None:
    tab = visit.open(
        playground, at="#stages=1e9&forward=x&memory=-3&schedules=nonesuch,gpipe,gpipe"
    )
    assert tab.locator(".card").count() == 1
    assert tab.locator("#slider-stages").input_value() == "16"
    none = visit.open(playground, at="#schedules=")
    assert none.locator(".card").count() == 0


def test_it_works_in_a_notebook(visit: Visit) -> None:
    tab = visit.tab()
    tab.set_content(schedules.playground()._repr_html_())
    frame = tab.frame_locator("iframe")
    expect(frame.locator(".card")).to_have_count(3)
    frame.get_by_text("Set it up").nth(1).click()
    expect(frame.locator(".card")).to_have_count(1)
    expect(frame.locator(".card .figure-value").first).to_have_text("33")
    frame.locator("#slider-microBatches").fill("28")
    expect(frame.locator(".card .figure-value").nth(1)).to_have_text("9.7%")


def test_the_way_back_leads_to_what_was_before(visit: Visit, playground: Path) -> None:
    tab = visit.open(playground)
    slide(tab, "stages", 6)
    tab.get_by_text("Set it up").first.click()
    assert tab.locator("#slider-stages").input_value() == "4"
    tab.go_back()
    assert tab.locator("#slider-stages").input_value() == "6"
