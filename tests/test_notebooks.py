"""The notebooks that people open hold what their sources say, with outputs and a picture."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT
from tests.keep_notebooks import differences, joined, keep_drawings, reports

jupytext = pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")
nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")

SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
MOST_BYTES = 700_000  # of which a page of a report takes some 350 000
MOST_LINES, MOST_LETTERS = 70, 6_000  # of what one output prints
MOST_LINES_OF_A_CELL = 30
# What a cell checks is no lesson: `test_notebook_statements.py` checks what it prints.
CHECKS = re.compile(r"^\s*assert\b|\bAssertionError\b|\bnp\.testing\b", re.MULTILINE)
DRAWN_BY_HAND = re.compile(r"#{4,}|0x[0-9a-f]{6,}")
# What differs from machine to machine: folders of users and of temporary files.
OF_A_MACHINE = re.compile(r"/(?:home|root|tmp|work|Users)/\w")

notebooks = pytest.mark.parametrize("source", SOURCES, ids=[path.stem[:2] for path in SOURCES])


def kept(source: Path) -> Any:
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def outputs(source: Path) -> list[Any]:
    return [output for cell in kept(source).cells for output in cell.get("outputs", ())]


@notebooks
def test_it_is_in_step_with_its_source(source: Path) -> None:
    cells = [(cell.cell_type, cell.source) for cell in kept(source).cells]
    assert cells == [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]


@notebooks
def test_it_has_been_run(source: Path) -> None:
    assert all(cell.execution_count for cell in kept(source).cells if cell.cell_type == "code")
    assert not [output for output in outputs(source) if output.output_type == "error"]


@notebooks
def test_it_has_a_picture_and_is_small(source: Path) -> None:
    data = [output.get("data", {}) for output in outputs(source)]
    pages = [each.get("text/html", "") for each in data]
    drawn = [page for page in pages if page.startswith("<img ")]
    assert drawn or [each for each in data if "image/png" in each]
    assert not [page for page in pages if "<svg" in page and "<iframe" not in page]
    assert source.with_suffix(".ipynb").stat().st_size < MOST_BYTES


@notebooks
def test_it_prints_what_can_be_read(source: Path) -> None:
    for output in outputs(source):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        assert text.count("\n") < MOST_LINES
        assert len(text) < MOST_LETTERS


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"text": "loss 0.25, accuracy 81 percent"}, []),
        ({"text": "error 0.5, accuracy 80 percent"}, ["other words: error, loss"]),
        (
            {"output_type": "display_data", "data": {"image/png": ""}, "metadata": {}},
            ["cell 0: other outputs", "other words: accuracy, loss, percent"],
        ),
    ],
)
def test_what_is_shown_otherwise_is_found(changed: dict[str, Any], found: list[str]) -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": "loss 0.5, accuracy 80 percent"}
    new = changed if "data" in changed else printed | changed
    kept, executed = (
        nbformat.from_dict({"cells": [{"cell_type": "code", "outputs": [output]}]})
        for output in (printed, new)
    )
    assert differences(kept, executed) == found


def test_what_is_printed_in_pieces_is_kept_in_one() -> None:
    printed = [("stdout", "loss "), ("stderr", "log"), ("stdout", "0.5"), ("other", "page")]
    outputs = [nbformat.from_dict({"name": name, "text": text}) for name, text in printed]
    kept = [(each["name"], each["text"]) for each in joined(outputs)]
    assert kept == [("stdout", "loss 0.5"), ("other", "page")]


def test_drawings_are_kept_as_images() -> None:
    data = {"text/html": '<div><svg width="9" style="x:y" aria-label="a"><g></g></svg></div>'}
    keep_drawings(data)
    found = re.fullmatch(
        r'<img src="data:image/svg\+xml;base64,(.+)" alt="a" width="9">', *data.values()
    )
    assert found
    assert base64.b64decode(found[1]).startswith(b'<svg width="9" style="background:#fff;')


@notebooks
def test_it_begins_with_what_one_learns_and_ends_with_what_to_try(source: Path) -> None:
    first, *_, last = jupytext.read(source).cells
    assert (first.cell_type, last.cell_type) == ("markdown", "markdown")
    assert first.source.startswith("# ")
    for promise in ("* **You learn** ", "* **It takes** ", "* **It needs** "):
        assert promise in first.source
    assert 1 <= len(re.findall(r"^\d\. ", last.source.partition("## Try")[2], re.MULTILINE)) <= 2


@notebooks
def test_its_cells_are_short_and_check_nothing(source: Path) -> None:
    code = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    assert max(len(cell.splitlines()) for cell in code) <= MOST_LINES_OF_A_CELL
    assert not [cell for cell in code if CHECKS.search(cell)]


@notebooks
def test_it_shows_no_addresses_and_no_bars_of_letters(source: Path) -> None:
    texts = (
        each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs(source)
    )
    assert not [text for text in texts if DRAWN_BY_HAND.search(text)]


@notebooks
def test_it_names_no_machine(source: Path) -> None:
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert not OF_A_MACHINE.findall(text)
    for document in reports(text):
        assert not OF_A_MACHINE.findall(document)


def test_each_is_on_the_list() -> None:
    for page in ("notebooks/README.md", "docs/tutorials.md"):
        listed = re.findall(r"\b(\d\d_\w+)", (ROOT / page).read_text(encoding="utf-8"))
        assert {path.stem for path in SOURCES} == set(listed)
