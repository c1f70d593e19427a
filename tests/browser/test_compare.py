"""The page of two reports: it pairs and writes as the text does, and colours what got better."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from playwright.sync_api import Locator, Page

from ipujax.ground import format_bytes, format_count, format_duration, format_percent
from ipujax.report import Report, describe_report_difference
from ipujax.report.presentation import bundle, html
from ipujax.report.presentation.comparison import compare_reports
from tests.browser.looking import Visit, frames, selection, show
from tests.ipujax.whatifs import network, pipelined, sharded

Pairs = dict[str, tuple[Report, Report]]

PAIRS: dict[str, Callable[[], tuple[Report, Report]]] = {
    "batch": lambda: (network(), network(batch=128)),
    "float16": lambda: (network(), network(dtype=jnp.float16)),
    "layer": lambda: (network(), network(layers=4)),
    "ipus": lambda: (sharded(1), sharded(2)),
    "recompute": lambda: (pipelined(False), pipelined(True)),
}
HYPHEN = re.compile(r"(?<![\w\]])-\d")  # before a number, in place of a minus sign


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """Those that have been asked for."""
    return {}


@pytest.fixture
def compared(pairs: Pairs, visit: Visit, tmp_path: Path) -> Callable[..., tuple[Page, Locator]]:
    """Opens the page of a pair at its comparison."""

    def open_pair(name: str, **window: Any) -> tuple[Page, Locator]:
        pairs[name] = pairs.get(name) or PAIRS[name]()
        path = tmp_path / f"{name}.html"
        page = html.render_html_page([report.to_dict() for report in pairs[name]])
        path.write_text(page, encoding="utf-8")
        tab = visit.open(path, **window)
        return tab, show(tab, "compare")

    return open_pair


def verdicts(view: Locator, row: str) -> set[str]:
    """The classes of the cells of a headline."""
    cells = view.locator(f"[data-row='{row}'] td")
    classes = cells.evaluate_all("cells => cells.flatMap(cell => [...cell.classList])")
    return set(classes) & {"good", "bad"}


def cells(view: Locator, table: str) -> list[list[str]]:
    """The rows of a table that are in the page."""
    return view.locator(f"[data-table={table}] tr[data-row]").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )


@pytest.mark.parametrize("name", PAIRS)
def test_page_and_text_have_the_same_pairs(
    compared: Callable[..., tuple[Page, Locator]], pairs: Pairs, name: str
) -> None:
    _, view = compared(name, height=2000)
    a, b = pairs[name]
    comparison = compare_reports(a, b)
    assert f"{len(comparison.operations)} rows" in view.inner_text()
    text = describe_report_difference(a, b).partition("Operations that changed most")[2]
    changed = [line for line in text.splitlines()[1:] if line and not line.startswith("and ")]
    rows = cells(view, "compare-operations")
    for line, (title, change, *_) in zip(changed, rows, strict=False):
        assert title in line
        assert (change[0] == "+") == (line.split()[-1][0] == "+" or line.endswith("new"))
    assert not HYPHEN.search(view.inner_text())
    assert not HYPHEN.search(text)


def test_a_larger_batch_is_not_worse(compared: Callable[..., tuple[Page, Locator]]) -> None:
    _, view = compared("batch")
    assert "so that a longer time is not worse." in view.locator("[data-notes]").inner_text()
    assert verdicts(view, "cycles of a forward GFLOP") == {"good"}
    assert not verdicts(view, "cycles of a call") | verdicts(view, "time of a call")
    assert verdicts(view, "the fullest tile") == {"bad"}
    table = view.locator("[data-table=compare-operations]")
    assert table.locator("td.good, td.bad").count() == 0
    titles = [title for title, *_ in cells(view, "compare-operations")]
    assert "matmul 64→128 x 96 x 128" in titles


def test_shares_are_neither_good_nor_bad(compared: Callable[..., tuple[Page, Locator]]) -> None:
    _, view = compared("float16")
    assert verdicts(view, "cycles of a call") == {"good"}
    shares = view.locator("[data-row$=', of all cycles']")
    changes = shares.locator("td:nth-of-type(3)").all_inner_texts()
    assert any(change.startswith("\N{MINUS SIGN}") for change in changes)
    assert shares.locator(".good, .bad").count() == 0
    assert view.locator("[data-table=compare-costs] :is(.good, .bad)").count() == 0


def test_recomputation_is_worse_in_time(
    compared: Callable[..., tuple[Page, Locator]], pairs: Pairs
) -> None:
    _, view = compared("recompute")
    assert verdicts(view, "elements a second") == {"bad"}
    assert verdicts(view, "cycles of a call") == {"bad"}
    peaks = [int(report.memory.tile_peak_bytes.max()) for report in pairs["recompute"]]
    expected = {-1: {"good"}, 0: set(), 1: {"bad"}}[int(np.sign(peaks[1] - peaks[0]))]
    assert verdicts(view, "the fullest tile") == expected


def test_ipus_that_one_report_lacks_are_no_verdict(
    compared: Callable[..., tuple[Page, Locator]],
) -> None:
    _, view = compared("ipus")
    rows = view.locator("[data-table=compare-causes] tr[data-row]")
    assert [row[0] for row in cells(view, "compare-causes")] == ["all", "0", "1"]
    assert rows.nth(0).locator(".bad").count() > 0
    assert rows.nth(1).locator(".good, .bad").count() == 0
    assert rows.nth(0).get_attribute("aria-selected") is None
    ipus = [row[5] for row in cells(view, "compare-operations")]
    assert "0 → 0-1" in ipus


def test_what_is_paired_is_selected_on_both_sides(
    compared: Callable[..., tuple[Page, Locator]],
) -> None:
    tab, view = compared("float16")
    view.locator("[data-table=compare-operations] tr", has_text="matmul").first.click()
    operation = selection(tab)["operation"]
    assert operation is not None
    labels = tab.evaluate(
        """number => window.ipujax.reports.map(report =>
          report.operations.filter(each => each.number === number).map(each => each.label))""",
        operation,
    )
    assert labels[0]
    assert labels[0] == labels[1]
    show(tab, "program")
    frames(tab)
    exact = tab.locator("[data-view=program]").evaluate_all(
        "views => views.map(view => view.querySelectorAll('.is-exact').length)"
    )
    assert len(exact) == 2
    assert all(exact)


@pytest.fixture
def formats(visit: Visit) -> Callable[..., Any]:
    """Calls a function of `format.js` for each of some lists of arguments."""
    tab = visit.tab()
    source = bundle.strip_module(bundle.read_page_file("page/format.js"))

    def call(name: str, arguments: list[Any]) -> Any:
        script = f"all => {{ {source}; return all.map(each => {name}(...each)); }}"
        return tab.evaluate(script, arguments)

    return call


def test_text_and_page_write_numbers_alike(formats: Callable[..., Any]) -> None:
    draw = random.Random(7)
    sizes = [draw.randrange(10 ** draw.randrange(1, 16)) for _ in range(2000)]
    sizes += [1000 * n + 500 for n in range(2000)] + [10 * n + 5 for n in range(2000)]  # halves
    assert formats("bytes", [[size] for size in sizes]) == list(map(format_bytes, sizes))
    assert formats("cycles", [[size] for size in sizes]) == list(map(format_count, sizes))
    times = [draw.random() * 10.0 ** draw.randrange(-9, 4) for _ in range(2000)]
    times += [n / 2**20 for n in range(2000)]
    assert formats("seconds", [[time] for time in times]) == list(map(format_duration, times))
    shares = [draw.random() for _ in range(2000)] + [n / 2048 for n in range(2049)]
    assert formats("percent", [[share] for share in shares]) == list(map(format_percent, shares))


def test_points_are_what_the_shown_shares_differ_by(formats: Callable[..., Any]) -> None:
    said = formats("pointsMore", [[0.11, 0.1], [0.1, 0.11], [0.12, 0.1], [0.264, 0.2305], [1, 1]])
    assert said == ["+1 point", "\N{MINUS SIGN}1 point", "+2 points", "+3.3 points", "0"]
