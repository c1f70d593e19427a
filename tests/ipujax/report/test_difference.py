from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import ipujax as ipu
from ipujax.ground import format_change
from ipujax.report import Report, describe_report_difference
from ipujax.report.presentation.work import count_work_of_call
from tests.ipujax.reporting import configured, struct, training
from tests.ipujax.small_report import small_report


@pytest.fixture(scope="module")
def pair() -> tuple[Report, Report]:
    configured(2)
    found: list[Report] = []
    for micro_batches in (8, 32):
        model, args = training(2, micro_batches)
        found.append(ipu.compile(model).lower(*args).report())
    return found[0], found[1]


def row(text: str, name: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return lines[0].removeprefix(name).split()


def test_equal_reports_say_so(pair: tuple[Report, Report]) -> None:
    text = describe_report_difference(pair[0], Report.from_dict(pair[0].to_dict()))
    assert text == "train: no difference in time, memory or operations"


def test_differences_are_shown_with_their_share(pair: tuple[Report, Report]) -> None:
    a, b = pair
    text = describe_report_difference(a, b)
    assert row(text, "cycles per call") == [
        f"{a.cycles:,}",
        f"{b.cycles:,}",
        format_change(b.cycles / a.cycles - 1),
    ]
    assert "Operations that changed most" in text
    assert len(text.splitlines()) < 45


def test_calls_that_do_more_are_compared_by_what_they_do(pair: tuple[Report, Report]) -> None:
    a, b = pair
    text = describe_report_difference(a, b, ["small.json", "large.json"])
    title = "large.json does 4 times the work of small.json: 32 elements a call, not 8"
    assert text.splitlines()[2] == title
    each = a.cycles / 8, b.cycles / 32
    assert row(text, "cycles per element") == [
        *(f"{n:,.0f}" for n in each),
        format_change(each[1] / each[0] - 1),
    ]
    assert text.index("cycles per element") < text.index("cycles per call")
    assert a.breakdown is not None
    assert b.breakdown is not None
    for cause in ("work", "bubble"):
        each = int(a.breakdown[cause].sum()) / 8, int(b.breakdown[cause].sum()) / 32
        assert row(text, cause)[:2] == [f"{n:,.0f}" for n in each]


def test_throughput_is_told_in_examples_where_both_know_them(pair: tuple[Report, Report]) -> None:
    a, b = (report.to_dict() for report in pair)
    a["batch_size"], b["batch_size"] = 32, 64
    text = describe_report_difference(Report.from_dict(a), Report.from_dict(b))
    assert "elements a second" not in text
    for report, batch, told in zip(pair, (32, 64), row(text, "examples a second"), strict=False):
        assert float(told.replace(",", "")) == pytest.approx(
            report.elements * batch / report.seconds, rel=1e-3
        )
    b["batch_size"] = None
    text = describe_report_difference(Report.from_dict(a), Report.from_dict(b))
    assert "elements a second" in text


def test_reports_of_earlier_versions_are_compared_by_kinds_of_steps(
    pair: tuple[Report, Report],
) -> None:
    data = pair[0].to_dict()
    del data["breakdown"]
    text = describe_report_difference(Report.from_dict(data), pair[1])
    assert row(text, "compute")[0] == f"{int(pair[0].busy_cycles['compute'].sum()) / 8:,.0f}"


def test_iterations_of_a_loop_are_work() -> None:
    def looped(times: int) -> Report:
        def fn(x: Any) -> Any:
            return ipu.loops.repeat(times, lambda t: jnp.tanh(t @ t), [x])

        return ipu.compile(fn, name="f").lower(struct(64, 64)).report()

    text = describe_report_difference(looped(20), looped(40))
    assert "b does 2 times the work of a: 40 iterations a call, not 20" in text
    assert row(text, "cycles per iteration")[2] == "same"
    assert "Operations that changed most" not in text


def test_calls_of_which_nothing_tells_what_they_do_are_compared_as_they_are() -> None:
    def report_of(rows: int) -> Report:
        return ipu.compile(lambda x: x @ x.T, name="f").lower(struct(rows, 64)).report()

    one, other = report_of(64), report_of(512)
    assert count_work_of_call(one) is None
    assert " the work of " not in describe_report_difference(one, other)


def test_what_one_of_them_lacks_is_told(pair: tuple[Report, Report]) -> None:
    text = describe_report_difference(pair[0], small_report(), ["one.json", "other.json"])
    assert "only one.json has a pipeline" in text.splitlines()


def test_files_are_the_heads_of_columns(pair: tuple[Report, Report]) -> None:
    long = "a_very_long_name_of_a_file_of_mine.json"
    head = describe_report_difference(*pair, ["small.json", long]).split("\n\n")[1].splitlines()[0]
    assert head.split() == ["small.json", f"...{long[-21:]}", "change"]


def test_what_is_equal_is_left_out(pair: tuple[Report, Report]) -> None:
    text = describe_report_difference(*pair)
    for name in ("target", "IPUs", "replicas", "schedule", "fits"):
        assert not any(line.startswith(f"{name} ") for line in text.splitlines())


def test_operations_come_and_go() -> None:
    def report_of(fn: Callable[..., Any]) -> Report:
        return ipu.compile(fn, name="f").lower(struct(64, 64)).report()

    a, b = report_of(lambda x: jnp.tanh(x)), report_of(lambda x: jnp.sin(x) @ x)
    text = describe_report_difference(a, b)
    assert row(text, "tanh ")[-1] == "gone"
    assert row(text, "sin ")[-1] == "new"
    assert row(text, "temporaries")[-1] == "new"
