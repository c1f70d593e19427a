from __future__ import annotations

import dataclasses as dc
import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import ComparisonError, TargetError
from ipujax.pipelining_ops import PipelineSchedule
from tests.ipujax.reporting import configured, struct, training


def rows_of(fn: Any, args: Any, **arguments: Any) -> list[Any]:
    return list(ipu.compare(fn, args, **arguments).rows)


def test_chips_are_side_by_side() -> None:
    rows = rows_of(lambda x: jnp.tanh(x) @ x, [struct(64, 64)])
    assert [row.target for row in rows] == ["ipu1", "ipu2", "ipu21"]
    for row in rows:
        report = row.report
        assert (row.schedule, row.error, row.fits) == ("", "", True)
        assert row.cycles == report.cycles
        assert row.seconds == row.cycles / ipu.targets.named(row.target).clock_hz
        assert row.peak_tile_bytes == report.memory.tile_peak_bytes.max()
        assert row.bubble_fraction is row.throughput is None


def test_schedules_reach_the_pipeline() -> None:
    configured(4)
    model, args = training(4, 16)
    asked = ["grouped", "Interleaved", PipelineSchedule.Sequential, schedules.one_f_one_b]
    rows = rows_of(model, args, targets=["ipu2"], schedules=asked)
    assert [row.schedule for row in rows] == ["grouped", "Interleaved", "Sequential", "one_f_one_b"]
    bubbles = [row.bubble_fraction for row in rows]
    assert bubbles[0] == pytest.approx(8 / 24)
    assert bubbles[2] == pytest.approx(3 / 4)
    assert bubbles[3] == pytest.approx(3 / 19)
    assert [row.report.pipeline.schedule for row in rows] == [
        "grouped",
        "interleaved",
        "sequential",
        "1f1b",
    ]
    assert all(row.throughput == 16 / row.seconds for row in rows)


def test_a_comparison_leaves_the_program_as_it_was() -> None:
    configured(2)
    model, args = training(2, 4)
    jitted = jax.jit(model)  # JAX caches what it traced

    def around(weights: Any) -> Any:
        return jitted(weights)

    run = ipu.compile(around)
    before = run.lower(*args).as_text()
    rows = rows_of(run, args, targets=["ipu2"], schedules=["gpipe", "grouped"])
    assert [row.report.pipeline.schedule for row in rows] == ["gpipe", "grouped"]
    assert run.lower(*args).as_text() == before


def test_a_combination_that_cannot_be_has_its_error_in_its_row() -> None:
    configured(4)
    model, args = training(4, 6)  # no multiple of the 4 that Interleaved wants
    comparison = ipu.compare(model, args, targets=["ipu2"], schedules=["interleaved", "gpipe"])
    bad, good = comparison.rows
    assert "multiple of 4" in bad.error
    assert (bad.fits, bad.cycles, bad.report) == (None, None, None)
    assert good.error == ""
    assert "multiple of 4" in str(comparison)


def test_a_device_that_is_too_small_is_an_error_of_every_row() -> None:
    configured(2)
    model, args = training(4, 8)
    rows = rows_of(model, args)
    assert len(rows) == 3
    assert all("IPU" in row.error for row in rows)


def test_schedules_of_ones_own_are_compared() -> None:
    configured(2)
    model, args = training(2, 4)

    def all_forward_first(stages: int, micro_batches: int) -> Any:
        batches = range(micro_batches)
        return [[f"{s}{p}{m}" for p in "FB" for m in batches] for s in range(stages)]

    finished = schedules.gpipe(2, 4)
    rows = rows_of(model, args, targets=["ipu2"], schedules=[all_forward_first, finished])
    assert [row.schedule for row in rows] == ["all_forward_first", "gpipe"]
    assert rows[0].cycles == rows[1].cycles


def test_targets_may_be_described() -> None:
    half = dc.replace(ipu.targets.IPU2, name="half", tiles_per_ipu=736)
    rows = rows_of(lambda x: x + 1, [struct(100_000)], targets=["ipu2", half])
    assert [row.target for row in rows] == ["ipu2", "half"]
    assert rows[1].peak_tile_bytes > rows[0].peak_tile_bytes


def test_chips_of_one_name_are_told_apart() -> None:
    half = dc.replace(ipu.targets.IPU2, tiles_per_ipu=736)
    rows = rows_of(lambda x: x + 1, [struct(8)], targets=["ipu1", "ipu2", half])
    assert [row.target for row in rows] == ["ipu1", "ipu2 (1472 tiles)", "ipu2 (736 tiles)"]


def test_tables_are_aligned_and_plain() -> None:
    configured(2)
    model, args = training(2, 4)
    comparison = ipu.compare(model, args, targets=["ipu1", "ipu21"], schedules=["gpipe"])
    title, header, *rows = str(comparison).splitlines()
    assert title == "train"
    assert header.split()[:3] == ["target", "schedule", "fits"]
    assert [row.split()[:3] for row in rows] == [
        ["ipu1", "gpipe", "yes"],
        ["ipu21", "gpipe", "yes"],
    ]
    assert len({len(line) for line in (header, *rows)}) == 1
    data = json.loads(json.dumps(comparison.to_dict()))
    assert data == comparison.to_dict()
    assert data["rows"][0]["target"] == "ipu1"
    assert "report" not in data["rows"][0]


@pytest.mark.parametrize(
    ("arguments", "error", "wanted"),
    [
        ({"targets": ["ipu2", "ipu3"]}, TargetError, "no chip 'ipu3'"),
        ({"targets": [2]}, TargetError, "no chip 2"),
        ({"targets": []}, ComparisonError, "targets is empty"),
        ({"schedules": ["grouped", "gruped"]}, ComparisonError, "did you mean 'grouped'"),
        ({"schedules": [3]}, ComparisonError, "of compare is 3, of type int"),
        ({"schedules": []}, ComparisonError, "schedules is empty"),
        ({"schedules": ["gpipe"]}, ComparisonError, "contains no pipeline"),
    ],
)
def test_what_does_not_exist_is_an_error(
    arguments: dict[str, Any], error: type[Exception], wanted: str
) -> None:
    with pytest.raises(error, match=wanted):
        ipu.compare(lambda x: x + 1, [struct(8)], **arguments)


def test_what_is_no_function_is_an_error() -> None:
    with pytest.raises(ComparisonError, match=r"(?s)fn is None.*give the function to model"):
        ipu.compare(None, [struct(8)])


def test_arguments_come_in_a_list() -> None:
    with pytest.raises(ComparisonError, match=r"args is .*must be a list or tuple"):
        ipu.compare(lambda x: x + 1, struct(8))


@pytest.mark.parametrize("compiled", [False, True])
def test_arguments_that_fn_does_not_take_are_an_error(compiled: bool) -> None:
    def model(params: Any) -> Any:
        return params[0] @ params[1]

    params = [struct(8, 8), struct(8, 8)]
    fn = ipu.compile(model) if compiled else model
    wanted = r"fn\(params.*\) .*does not take these 2: .*\n  fix:   pass .*\[params\]"
    with pytest.raises(ComparisonError, match=wanted):
        ipu.compare(fn, params)
    assert rows_of(fn, [params], targets=["ipu2"])[0].fits


def test_errors_of_the_model_say_where_they_come_from() -> None:
    with pytest.raises(TypeError, match="dot_general") as caught:
        ipu.compare(lambda x, y: x @ y, [struct(8, 8), struct(9, 9)])
    assert any("ipu.compare, while tracing" in note for note in caught.value.__notes__)


def test_long_comparisons_show_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ipu.compare(lambda x: x + 1, [struct(8)])
    assert "compare:" not in capsys.readouterr().err
    monkeypatch.setattr("ipujax.ground.progress_line._QUIET_SECONDS", -1.0)
    ipu.compare(lambda x: x + 1, [struct(8)])
    assert "compare: 3 of 3, ipu21" in capsys.readouterr().err
