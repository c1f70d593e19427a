"""What a report's page costs: how large it is, how long writing takes, when a browser shows it.

The pages of a small model, of pipelines, two of them of 17 million steps, and of a program of
100 000 steps of which none are in a loop.
"""

from __future__ import annotations

import functools
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import shown
from benchmarks.measure import Row

REPEATS = 5
PAINTED = "performance.getEntriesByName('ipujax-ready')[0].startTime"
# program, what it is, and the megabytes and seconds that its page may take
REACH = (
    (shown.small, "a small model", 1.0, 1.0),
    (shown.pipeline, "a pipeline of 16 IPUs", 5.0, 3.0),
    (shown.deep, "100 000 steps", 20.0, 3.0),
    (functools.partial(shown.pipeline, micro_batches=1088), "17 million steps", 20.0, 10.0),
    (shown.many_tasks, "17 million steps in a million tasks", 20.0, 10.0),
)
FIRST_PAINT_SECONDS = 2.0


def rows() -> list[Row]:
    """Ratios are of megabytes and seconds to what each may take."""
    found: list[Row] = []
    for program, what, megabytes, seconds in REACH:
        report = program().report()
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            took = statistics.median(_seconds(report, page) for _ in range(REPEATS))
            size = page.stat().st_size / 1e6
            painted = _first_paint(page)
        note = f"{took:.2f} s / {seconds:g} s; modelling it is not counted"
        found.append(Row(f"writing the page of {what}", took / seconds, 1.0, note))
        found.append(Row("  its size", size / megabytes, 1.0, f"{size:.2f} MB / {megabytes:g} MB"))
        if painted is not None:
            note = f"{painted:.2f} s / {FIRST_PAINT_SECONDS:g} s"
            found.append(Row("  first paint", painted / FIRST_PAINT_SECONDS, 1.0, note))
    return found


def _seconds(report: Any, page: Path) -> float:
    start = time.perf_counter()
    report.to_html(page)
    return time.perf_counter() - start


def _first_paint(page: Path) -> float | None:
    """Seconds from opening a page until its first view stands; None without a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        times: list[float] = []
        for _ in range(REPEATS):
            tab = browser.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready=true]")
            times.append(tab.evaluate(PAINTED) / 1e3)
            tab.close()
        browser.close()
    return statistics.median(times)
