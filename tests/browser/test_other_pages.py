"""Pages that the samples do not have: of two reports, of a host's trace, of a program that does
nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

import ipujax as ipu
from ipujax.host_trace import HostSpan, HostTrace
from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, frames, pixels, show, views_of
from tests.ipujax.reporting import configured, struct, training

SPANS = [
    HostSpan("user", "an epoch", 0.0, 1.0, "main"),
    HostSpan("execute", "train", 0.1, 0.7, "main"),
    HostSpan("compile", "train", 0.2, 0.4, "main"),
    HostSpan("augment", "images", 0.0, 0.3, "feeder"),
    HostSpan("report", "train", 1.0, 0.25, "main"),
]


@pytest.fixture(scope="module")
def both() -> list[Report]:
    """A pipeline, and one that takes four times as long."""
    reports: list[Report] = []
    for micro_batches in (8, 32):
        configured(4)
        train, arguments = training(4, micro_batches)
        reports.append(ipu.compile(train).lower(*arguments).report())
    return reports


@pytest.fixture
def compared(both: list[Report], visit: Visit, tmp_path: Path) -> Page:
    path = tmp_path / "both.html"
    documents = [report.to_dict() for report in both]
    path.write_text(
        html.render_html_page(documents, ["before.json", "after.json"]), encoding="utf-8"
    )
    return visit.open(path)


@pytest.mark.exhaustive
def test_sides_have_the_names_of_their_files(compared: Page) -> None:
    show(compared, "memory")
    titles = compared.locator("#panel-memory .side-title").all_inner_texts()
    assert titles == ["A: before.json (train)", "B: after.json (train)"]
    assert "B: after.json" in show(compared, "compare").inner_text()


@pytest.mark.exhaustive
def test_both_sides_have_one_scale(compared: Page) -> None:
    show(compared, "timeline")
    shared = pixels(compared, "timeline")  # of the shorter one
    compared.get_by_label("same scale on both sides").click()
    frames(compared)
    alone = pixels(compared, "timeline")
    assert (shared != alone).any()


def test_compared_numbers_are_those_of_the_reports(compared: Page, both: list[Report]) -> None:
    view = show(compared, "compare")
    causes = view.locator("[data-table=compare-causes] tr[data-row='0'] td").all_inner_texts()
    heads = view.locator("[data-table=compare-causes] th").all_inner_texts()
    spent = [one.breakdown["bubble"][0] for one in both if one.breakdown is not None]
    assert spent[1] / 32 < spent[0] / 8
    assert causes[heads.index("bubble")].startswith("\N{MINUS SIGN}")  # of one element
    bubbles = view.locator("[data-row='bubble, of all cycles'] td").all_inner_texts()
    assert bubbles[0].endswith("%")
    costs = view.locator("[data-table=compare-costs] tbody").inner_text()
    assert all(cost.title in costs for one in both for cost in one.costs[:1])
    assert "+<" not in view.inner_text()


def test_calls_that_do_more_are_compared_by_an_element(compared: Page, both: list[Report]) -> None:
    view = show(compared, "compare")
    assert "B does 4 times the work of A: 32 elements a call, not 8." in view.inner_text()
    rows = view.locator("[data-table=compare-headlines] tbody th").all_inner_texts()
    assert rows.index("cycles of one element") < rows.index("cycles of a call")
    row = view.locator("[data-row='cycles of one element'] td")
    ratio = both[1].cycles / 32 / (both[0].cycles / 8)
    assert float(row.last.inner_text().split()[0]) == pytest.approx(ratio, abs=5e-4)
    assert "good" in (row.last.get_attribute("class") or "")
    assert "good" not in (
        view.locator("[data-row='cycles of a call'] td").last.get_attribute("class") or ""
    )


def test_a_comparison_says_what_one_side_lacks(
    both: list[Report], visit: Visit, tmp_path: Path
) -> None:
    configured(1)
    plain = ipu.compile(lambda x: x @ x, name="plain").lower(struct(8, 8)).report().to_dict()
    for operation in plain["operations"]:
        del operation["number"]  # as in reports of earlier versions
    path = tmp_path / "both.html"
    path.write_text(
        html.render_html_page([both[0].to_dict(), plain], ["a.json", "b.json"]), encoding="utf-8"
    )
    tab = visit.open(path)
    notes = show(tab, "compare").locator("[data-notes] li").all_inner_texts()
    assert [note.split(":")[0].partition(" 0.")[0] for note in notes] == [
        "These are two programs",
        "B computes",
        "Only A has a pipeline",
        "B is of an earlier ipujax",
    ]
    show(tab, "schedule")
    sides = tab.locator("#panel-schedule .side")
    assert "Ticks" in sides.first.inner_text()
    assert "This program has no pipeline." in sides.last.inner_text()


def test_time_inside_another_span_counts_once(visit: Visit, tmp_path: Path) -> None:
    configured(1)
    trace = HostTrace(SPANS)
    report = ipu.compile(lambda x: x @ x).lower(struct(8, 8)).report(host=trace)
    path = tmp_path / "host.html"
    report.to_html(path)
    view = show(visit.open(path), "host")
    rows = view.locator("[data-table=host-kinds] tr[data-row]")
    shown = [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]
    assert [kind for kind, *_ in shown] == list(trace.seconds)
    for kind, _, time in shown:
        number, unit = time.split()
        assert float(number) * {"s": 1, "ms": 1e-3}[unit] == pytest.approx(trace.seconds[kind])


@pytest.mark.exhaustive
def test_a_program_that_does_nothing(visit: Visit, tmp_path: Path) -> None:
    configured(1)
    path = tmp_path / "nothing.html"
    ipu.compile(lambda x: x).lower(struct(4)).report().to_html(path)
    tab = visit.open(path)
    for view in views_of(tab):
        assert "NaN" not in show(tab, view).inner_text(), view
        assert "Infinity" not in show(tab, view).inner_text(), view
