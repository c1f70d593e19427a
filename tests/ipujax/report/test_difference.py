from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import ipujax as ipu
from ipujax.report.presentation.difference import difference
from ipujax.report.report import Report
from tests.ipujax.reporting import configured, struct, training


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
    text = difference(pair[0], Report.from_dict(pair[0].to_dict()))
    assert text == "train: no difference in time, memory or operations"


def test_differences_are_shown_with_their_share(pair: tuple[Report, Report]) -> None:
    a, b = pair
    text = difference(a, b)
    assert row(text, "cycles") == [
        f"{a.cycles:,}",
        f"{b.cycles:,}",
        f"{b.cycles / a.cycles - 1:+.1%}",
    ]
    assert row(text, "bubble") == ["33.3%", "11.1%"]
    compute = [int(report.busy_cycles["compute"].sum()) for report in pair]
    assert row(text, "compute") == [
        *(f"{n:,}" for n in compute),
        f"{compute[1] / compute[0] - 1:+.1%}",
    ]
    assert "Operations that changed most" in text
    assert len(text.splitlines()) < 40


def test_what_is_equal_is_left_out(pair: tuple[Report, Report]) -> None:
    text = difference(*pair)
    for name in ("target", "IPUs", "replicas", "schedule", "fits"):
        assert not any(line.startswith(f"{name} ") for line in text.splitlines())


def test_operations_come_and_go() -> None:
    def report_of(fn: Callable[..., Any]) -> Report:
        return ipu.compile(fn, name="f").lower(struct(64, 64)).report()

    a, b = report_of(lambda x: jnp.tanh(x)), report_of(lambda x: jnp.sin(x) @ x)
    text = difference(a, b)
    assert row(text, "tanh float32[64,64]")[-1] == "gone"
    assert row(text, "sin float32[64,64]")[-1] == "new"
    assert row(text, "temporaries")[-1] == "new"
