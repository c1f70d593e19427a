"""The table of pipeline stages; after the original's `testPrintPipelineStageSummary`s."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.keras import PipelineStage, set_pipeline_stage_assignment, trace_in_stages
from ipujax.keras.stage_summary import print_pipeline_stage_assignment_summary


def lines_of(model: Any, line_length: int | None = 85) -> list[str]:
    lines: list[str] = []
    print_pipeline_stage_assignment_summary(model, line_length, lines.append)
    return lines


def cells(lines: list[str]) -> list[list[str]]:
    return [[x.strip() for x in line.strip("│┃").replace("┃", "│").split("│")] for line in lines
            if line[0] in "│┃"]  # fmt: skip


def branches() -> Any:
    first, second = keras.Input((32,), name="a"), keras.Input((32,), name="b")
    with PipelineStage(0):
        x = layers.Concatenate(name="joined")([first, second])
    with PipelineStage(1):
        x = layers.Dense(4, name="dense")(x)
    return keras.Model((first, second), x, name="branches")


def test_functional() -> None:
    lines = lines_of(branches())
    assert lines[0] == 'Model: "branches"'
    assert all(len(line) == 85 for line in lines[1:])
    assert cells(lines) == [
        ["Layer (type) (node index)", "Output Shape", "Pipeline Stage"],
        ["joined (Concatenate) (0)", "(None, 64)", "0"],
        ["dense (Dense) (0)", "(None, 4)", "1"],
    ]


def test_notebooks_get_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = lines_of(branches())
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert lines_of(branches()) == expected


def test_sequential_and_nested() -> None:
    inner = keras.Sequential(
        [keras.Input((8,)), layers.Dense(4, name="c"), layers.Dense(2, name="d")], name="inner"
    )
    model = keras.Sequential([layers.Dense(8, name="e"), inner], name="outer")
    assert cells(lines_of(model))[1:] == [
        ["e (Dense) (0)", "?", "None"],
        ["inner (Sequential) (0)", "(None, 2)", ""],
        ["└ c (Dense) (0)", "(None, 4)", "None"],
        ["└ d (Dense) (0)", "(None, 2)", "None"],
    ]
    set_pipeline_stage_assignment(model, [0, 1])
    assert cells(lines_of(model))[-1] == ["inner (Sequential) (0)", "(None, 2)", "1"]


def test_subclassed() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="ours")
            self.dense = layers.Dense(4, name="dense")

        def call(self, x: Any) -> Any:
            with PipelineStage(0):
                return self.dense(x)

    model = Model()
    model(np.ones((2, 3), np.float32))
    with pytest.raises(PipelineError, match="not known yet"):
        lines_of(model)
    with trace_in_stages(model):
        model(np.ones((2, 3), np.float32))
    assert cells(lines_of(model))[1:] == [["dense (Dense) (0)", "(2, 4)", "0"]]


def test_long_names_and_narrow_lines_lose_nothing() -> None:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4, name="x" * 90 + "[bold]")])
    rows = cells(lines_of(model, 40))
    first = next(i for i, row in enumerate(rows) if row[0].startswith("xx"))
    assert "".join(row[0] for row in rows[first:]).startswith("x" * 90 + "[bold]")
    assert max(map(len, lines_of(model, 40)[1:])) <= 40


def test_print_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    print_pipeline_stage_assignment_summary(branches())
    printed = capsys.readouterr().out
    assert printed.startswith('Model: "branches"')
    print_pipeline_stage_assignment_summary(branches(), print_fn=None)
    assert capsys.readouterr().out == printed


def test_wrong_arguments() -> None:
    with pytest.raises(PipelineError, match="line_length is 5, but must be at least 24"):
        lines_of(branches(), 5)
    with pytest.raises(PipelineTypeError, match="print_fn is 'x'"):
        print_pipeline_stage_assignment_summary(branches(), print_fn="x")
