"""Conformance facts about synthetic data, with whole programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FlagError
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from tests.harness import ROOT
from tests.ipujax.feeding import compilations, infeed, outfeed

CATEGORIES = ["Seed", "Infeed", "Outfeed", "HostEmbedding", "Parameters"]

PROGRAM = """
    import ipujax as ipu
    print(ipu.compile(lambda x: x + 1)(1.0))
    print("reached the end")
"""


def run_in_a_process(flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TF_POPLAR_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.fact("synthetic.flags")
@pytest.mark.parametrize(
    ("flags", "on"),
    [
        ("", []),
        ("--use_synthetic_data", CATEGORIES),
        *((f"--synthetic_data_categories={name.lower()}", [name]) for name in CATEGORIES),
        ("--synthetic_data_categories=infeed,outfeed", ["Infeed", "Outfeed"]),
    ],
)
def test_flags_switch_categories_on(
    flags: str, on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    used = [name for name in CATEGORIES if use_synthetic_data_for(SyntheticDataCategory[name])]
    assert used == on


@pytest.mark.fact("synthetic.invalid")
def test_an_unknown_category_ends_the_process() -> None:
    ended = run_in_a_process("--synthetic_data_categories=FOO")
    assert ended.returncode != 0
    assert "FOO" in ended.stderr
    assert "reached the end" not in ended.stdout


@pytest.mark.fact("synthetic.initializer_alone")
def test_an_initializer_alone_ends_the_process() -> None:
    ended = run_in_a_process("--synthetic_data_initializer=random")
    assert ended.returncode != 0
    assert "synthetic_data_initializer" in ended.stderr
    assert "reached the end" not in ended.stdout


def elements_seen(n: int = 4) -> np.ndarray:
    """What a loop over an infeed of sevens sees, `[n, 1000]`."""
    source, sink = infeed([np.full(1000, 7, np.float32)] * n), outfeed()
    ipu.compile(lambda: ipu.loops.repeat(n, lambda x: sink.enqueue(x), [], source))()
    return sink.dequeue()


@pytest.mark.fact("synthetic.initializer_values")
@pytest.mark.parametrize(
    ("initializer", "mean", "spread"),
    [("", 0, 0), ("3", 3, 0), ("-2", -2, 0), ("random", 0, 1), ("normal", 0, 1),
     ("uniform", 0.5, 12**-0.5)],
)  # fmt: skip
def test_what_made_up_elements_hold(
    initializer: str, mean: float, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "--synthetic_data_categories=infeed"
    if initializer:
        flags += f" --synthetic_data_initializer={initializer}"
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    seen = elements_seen()
    assert seen.shape == (4, 1000)
    assert abs(seen[0].mean() - mean) < 0.15
    assert abs(seen[0].std() - spread) < 0.1
    if not spread:
        np.testing.assert_array_equal(seen, mean)


@pytest.mark.fact("synthetic.initializer_values")
def test_other_initializers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data --synthetic_data_initializer=most")
    with pytest.raises(FlagError, match="synthetic_data_initializer"):
        use_synthetic_data_for(SyntheticDataCategory.Infeed)


def test_a_made_up_infeed_reads_no_more_than_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def dataset() -> Iterator[Any]:
        for number in range(3):
            read.append(number)
            yield np.float32(number + 1)

    source = infeed(dataset)
    run = ipu.compile(lambda: ipu.loops.repeat(100, lambda v, x: v + x, [0.0], source))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=infeed")
    assert run() == 0
    assert read == [0]
    monkeypatch.delenv("TF_POPLAR_FLAGS")
    three = ipu.compile(lambda: ipu.loops.repeat(3, lambda v, x: v + x, [0.0], source))
    assert three() == 6


def test_a_made_up_outfeed_stays_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=outfeed")
    assert elements_seen().shape == (0, 1000)


def test_made_up_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ipu.compile(lambda x, y: x + y)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(run(x, x), [2, 2, 2])
    flags = "--synthetic_data_categories=parameters --synthetic_data_initializer=5"
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    fresh = ipu.compile(lambda x, y: x + y)
    np.testing.assert_array_equal(fresh(x, x), [10, 10, 10])


def test_nothing_is_exchanged_with_use_synthetic_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    source, sink = infeed([np.float32(9)]), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x + 1

    run: Any = ipu.compile(lambda v: ipu.loops.repeat(10, body, [v], source))
    with ipu.events.record() as trace:
        assert run(np.float32(100)) == 10
    assert compilations(trace) == 1
    assert sink.dequeue().shape == (0,)
