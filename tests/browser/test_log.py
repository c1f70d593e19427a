"""`ipujax report --serve` in a browser: a log of runs that refreshes itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ipujax.cli.serving import Library, Server
from tests.browser.looking import Visit
from tests.ipujax.small_report import small_report

SOON = 10_000  # milliseconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, (name, cycles) in enumerate((("train", 400), ("train", 300), ("other", 200))):
        path = tmp_path / f"{name}{i}.json"
        small_report(name=name, cycles=cycles, label="baseline" if not i else "").to_json(path)
        os.utime(path, (1e9 + i,) * 2)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with Server(Library([folder]), 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def opened(visit: Visit, server: Server, width: int = 1280, dark: bool = False) -> Page:
    tab = visit.tab(width=width, dark=dark)
    tab.goto(server.url)
    return tab


@pytest.fixture(autouse=True)
def only_this_server(visit: Visit, server: Server) -> Iterator[None]:
    """The log may ask its own server, and nobody else."""
    yield
    assert all(url.startswith(server.url) for url in visit.requests)
    visit.requests.clear()


def looked_at_again(tab: Page) -> None:
    """As a tab that one comes back to, which does not wait for its time to refresh."""
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_new_runs_come_by_themselves(visit: Visit, server: Server, folder: Path) -> None:
    tab = opened(visit, server)
    rows = tab.locator("tr[data-text]")
    assert rows.count() == 3
    tab.get_by_label("choose other2.json").check()
    tab.get_by_label("choose other2.json").focus()
    small_report(name="train", cycles=250).to_json(folder / "new.json")
    expect(rows).to_have_count(4, timeout=SOON)
    assert rows.first.locator("a").first.inner_text() == "new.json"
    box = tab.get_by_label("choose other2.json")
    assert box.is_checked()
    assert box.evaluate("box => box === document.activeElement")
    assert tab.locator("[data-program=train].card").inner_text().startswith("train\n3 runs")
    (folder / "new.json").unlink()
    looked_at_again(tab)
    expect(rows).to_have_count(3, timeout=SOON)


def test_runs_are_filtered_by_all_that_is_said_of_them(visit: Visit, server: Server) -> None:
    tab = opened(visit, server)
    rows, cards = tab.locator("tr[data-text]:visible"), tab.locator(".card:visible")
    assert (rows.count(), cards.count()) == (3, 2)
    for words, count, programs in (("BASE", 1, 1), ("train", 2, 1), ("json tiny", 3, 2)):
        tab.get_by_label("Filter runs").fill(words)
        assert (rows.count(), cards.count()) == (count, programs), words
    tab.get_by_label("Filter runs").fill("train nothing")
    assert rows.count() == 0
    assert tab.locator("#state").inner_text().startswith("0 of 3 in ")


def test_two_that_are_chosen_are_compared(visit: Visit, server: Server) -> None:
    tab = opened(visit, server)
    button = tab.locator("#compare")
    assert button.is_disabled()
    for name in ("baseline", "train1.json"):
        tab.get_by_label(f"choose {name}").check()
    assert button.inner_text() == "Compare the two"
    button.click()
    tab.wait_for_selector("html[data-ready=true]")
    said = tab.locator("[data-view=compare]").inner_text()
    assert "A: baseline" in said
    assert "B: train1.json" in said


def test_a_server_that_is_gone_is_told(visit: Visit, server: Server) -> None:
    tab = opened(visit, server)
    tab.route("**/log*", lambda route: route.abort())
    looked_at_again(tab)
    expect(tab.locator("#state")).to_contain_text("does not answer", timeout=SOON)
    visit.complaints.clear()  # the browser's own word on it


def test_light_and_dark_are_those_of_the_reports(visit: Visit, server: Server) -> None:
    tab = opened(visit, server, dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(paper)
    tab.get_by_label("Light or dark").click()
    light = tab.evaluate(paper)
    assert light != dark
    tab.locator("tr[data-text] a").first.click()
    tab.wait_for_selector("html[data-ready=true]")
    assert tab.evaluate(paper) == light


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_beyond_the_edge(visit: Visit, server: Server, width: int) -> None:
    tab = opened(visit, server, width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    edges = tab.locator("td:visible, th:visible, .card:visible").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().right)"
    )
    assert max(edges) <= width
