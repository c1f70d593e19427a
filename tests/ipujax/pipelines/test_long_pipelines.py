"""Pipelines of a million micro-batches, of absurdly many, and of orders without an end."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import OutOfRangeError
from ipujax.pipelining_ops import pipeline
from ipujax.schedules import ScheduleError
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.reporting import training

MILLION = 10**6
NAMES = [
    "grouped",
    "interleaved",
    "sequential",
    "gpipe",
    "one_f_one_b",
    "interleaved_one_f_one_b",
    "zero_bubble",
]


@contextmanager
def at_most(megabytes: float) -> Iterator[None]:
    """Fails if Python's objects take more memory in between."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 1e6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_lowering_does_not_grow_with_the_number_of_micro_batches(name: str) -> None:
    configure(4)
    fn, args = training(4, MILLION, width=4, batch=2, pipeline_schedule=getattr(schedules, name))
    with at_most(40):
        lowered = ipu.compile(fn).lower(*args)
        text = lowered.as_text()
        assert lowered.execution.engine == "fused"
    assert "1000000" in text


def test_the_engine_is_chosen_for_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it takes the times of all tasks to tell."""
    configure(4)
    fn, args = training(4, MILLION, pipeline_schedule=schedules.one_f_one_b)
    lowered = ipu.compile(fn).lower(*args)
    monkeypatch.setattr(type(lowered.placement), "uses_one_device", False)
    with at_most(10):
        assert lowered.execution.engine in ("fused", "replay")


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("schedule", [schedules.grouped, schedules.one_f_one_b])
def test_a_million_start_at_once(engine: str, schedule: Callable[..., Any]) -> None:
    configure(4)
    queue, out = infeed([np.full(2, i, np.float32) for i in range(9)]), outfeed()

    def run() -> None:
        pipeline(
            [jnp.sin, jnp.cos, jnp.sin, jnp.cos],
            MILLION,
            infeed_queue=queue,
            outfeed_queue=out,
            pipeline_schedule=schedule,
        )

    with at_most(40), pytest.raises(OutOfRangeError, match="1000000 elements were asked for"):
        ipu.compile(run, engine=engine)()


def inference(count: Any, schedule: Any = None) -> Callable[[], None]:
    """A pipeline of two stages."""
    out = outfeed()

    def run() -> None:
        pipeline([jnp.sin, jnp.cos], count, inputs=[jnp.ones(2)], outfeed_queue=out,
                 pipeline_schedule=schedule)  # fmt: skip

    return run


@pytest.mark.parametrize("count", [10**18, 10**9])
def test_absurdly_many_micro_batches(count: int) -> None:
    configure(2)
    with pytest.raises(ScheduleError) as caught:
        ipu.compile(inference(count)).lower()
    assert f"pipeline `pipeline`: a schedule of {count} micro-batches" in str(caught.value)
    assert "at most 10,000,000" in str(caught.value)
    assert f"where: {__file__}:" in str(caught.value)


def test_orders_without_an_end() -> None:
    configure(2)

    def mine(stages: int, micro_batches: int) -> object:
        return [itertools.cycle([f"{stage}F0", f"{stage}F1"]) for stage in range(stages)]

    with pytest.raises(ScheduleError) as caught:
        ipu.compile(inference(4, mine)).lower()
    assert "0F0 is twice in the order of IPU 0" in str(caught.value)
    assert "what `mine` gave is no schedule" in str(caught.value)
