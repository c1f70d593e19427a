"""The notebooks that people open hold what their sources say, with outputs and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT

jupytext = pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")
nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")

SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
PICTURES = ("image/png", "image/svg+xml")
MOST_BYTES = 600_000
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
    drawn = [each for each in data if "<svg" in each.get("text/html", "")]
    assert drawn or [each for each in data if any(kind in each for kind in PICTURES)]
    assert source.with_suffix(".ipynb").stat().st_size < MOST_BYTES


@notebooks
def test_it_names_no_machine(source: Path) -> None:
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert not OF_A_MACHINE.findall(text)


def test_each_is_on_the_list() -> None:
    for page in ("notebooks/README.md", "docs/tutorials.md"):
        listed = re.findall(r"\b(\d\d_\w+)", (ROOT / page).read_text(encoding="utf-8"))
        assert {path.stem for path in SOURCES} == set(listed)
