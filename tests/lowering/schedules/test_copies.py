"""Copies of stages: where the orders list them, what is refused, and what simulations say."""

from __future__ import annotations

import dataclasses as dc
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, build, simulate
from tests.lowering.schedules.checker import (
    all_ipus,
    check,
    holdings,
    in_flight,
    ipus_of,
    labels,
    makespan,
)

BOTH_WAYS = {0: "0F0 0F2 1F1 1B1 1F3 1B3 0B0 0B2", 1: "0F1 0F3 1F0 1B0 1F2 1B2 0B1 0B3"}


@st.composite
def some_copies(draw: st.DrawFn) -> tuple[Schedule, dict[int, list[str]]]:
    """A schedule with random copies on some IPUs, and the orders that it was built from."""
    stages, batches = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    count = dict.fromkeys(("min_size", "max_size"), stages)
    first = draw(st.lists(st.integers(0, 3), **count))
    places = st.lists(st.sampled_from(first), **count).map(tuple)
    others = draw(
        st.lists(places.filter(lambda place: place != tuple(first)), max_size=2, unique=True)
    )
    copies = [tuple(first), *others]
    some = st.integers(0, len(others))
    pattern = [0, *draw(st.lists(some, min_size=batches - 1, max_size=batches - 1))]
    phases = ["F", "B", "W"] if draw(st.booleans()) else ["F", "B"]
    generator = random.Random(draw(st.integers(0, 10**6)))
    todo = {
        m: [(s, "F") for s in range(stages)]
        + [(s, p) for s in reversed(range(stages)) for p in phases[1:]]
        for m in range(batches)
    }
    orders: dict[int, list[str]] = {ipu: [] for ipu in sorted(set(first))}
    while todo:
        number = generator.choice([*todo])
        stage, phase = todo[number].pop(0)
        orders[copies[pattern[number]][stage]].append(f"{stage}{phase}{number}")
        if not todo[number]:
            del todo[number]
    schedule = build(
        lambda s, m: orders, stages=stages, micro_batches=batches, training=True, ipus=first
    )
    return schedule, orders


@given(some_copies(), st.integers(0, 3), st.data())
def test_copies_are_found_and_simulated(
    made: tuple[Schedule, dict[int, list[str]]], transfer: int, data: st.DataObject
) -> None:
    schedule, orders = made
    check(schedule)
    for ipu, order in orders.items():
        ran = [
            Task(*t)
            for tick in labels(schedule)
            for t in tick
            if ipu in ipus_of(schedule, t[0], t[2])
        ]
        assert list(map(str, ran)) == order
    rows = {p: [data.draw(st.integers(0, 4)) + 1 for _ in range(schedule.stages)] for p in "FBW"}
    delays = [transfer] * (schedule.stages - 1)
    sizes = [data.draw(st.integers(0, 9)) for _ in range(schedule.stages)]
    run = simulate(
        schedule, {Phase(p): row for p, row in rows.items()}, transfer=delays, sizes=sizes
    )
    assert run.makespan == makespan(schedule, rows, delays)
    assert run.in_flight == tuple(in_flight(schedule, s) for s in range(schedule.stages))
    changes = holdings(schedule, rows, delays, sizes)
    for ipu, steps in zip(sorted(all_ipus(schedule)), run.bytes, strict=True):
        for time, held in steps:
            assert held == sum(c for at, where, c in changes if where == ipu and at <= time)
    assert schedules.from_text(schedules.to_text(schedule)) == schedule


def test_the_first_copy_is_that_of_the_pipeline() -> None:
    schedule = build(lambda s, m: BOTH_WAYS, stages=2, micro_batches=4, training=True)
    assert schedule.copies == (((0,), (1,)), ((1,), (0,)))
    assert schedule.copies[0] == schedule.ipus
    assert schedule.copy_pattern == (0, 1)
    assert schedule.needs(Task(0, Phase.BACKWARD, 1)) == (
        Task(0, Phase.FORWARD, 1),
        Task(1, Phase.BACKWARD, 1),
    )
    assert simulate(schedule).makespan == 8


def test_segments_wait_for_one_another() -> None:
    schedule = schedules.seq_one_f_one_b(2, 4)
    assert schedule.needs(Task(1, Phase.FORWARD, 3)) == (
        Task(0, Phase.FORWARD, 3),
        Task(1, Phase.FORWARD, 2),
    )
    assert schedule.needs(Task(1, Phase.BACKWARD, 2)) == (
        Task(1, Phase.FORWARD, 2),
        Task(1, Phase.BACKWARD, 3),
    )
    with pytest.raises(ScheduleError, match="1F1 in tick 2 needs 1F0"):
        simulate(
            dc.replace(
                schedule,
                ticks=(
                    (Task(0, Phase.FORWARD, 0),),
                    (Task(0, Phase.FORWARD, 1),),
                    (Task(1, Phase.FORWARD, 1),),
                ),
            )
        )


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ({0: "0F0 0F1 1F1 1B1 0B0", 1: "1F0 1B0 0B1"}, "0B1 is in the orders of the IPUs"),
        ({0: "0F0 1F1 1B1 0B0", 1: "1F0 1B0"}, "0F1 is missing in the orders of all IPUs"),
        ({0: "1F0 1B0 1F1 1B1", 1: "0F0 0F1 0B0 0B1"}, "no micro-batch has its stages on the IPUs"),
        ({0: "0F0 1F1 1B1 0B0", 1: "0F1 1F0 1B0 0B1 0F1"}, "0F1 is twice in the order of IPU 1"),
    ],
)
def test_orders_that_are_no_copies(orders: dict[int, str], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build(lambda s, m: orders, stages=2, micro_batches=2, training=True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"copies": (((0,), (1,)), ((0,), (1,)))}, "copies="),
        ({"copies": (((1,), (0,)),)}, "copies="),
        ({"copies": (((0,), (1,)), ((2,), (3, 4)))}, "other numbers of IPUs"),
        ({"copies": (((0,), (1,)), ((1,), (0,)))}, "copy_pattern="),
        ({"copy_pattern": (1,)}, "copy_pattern="),
        ({"copy_pattern": ()}, "copy_pattern="),
        ({"segments": 0}, "0 segments"),
        ({"segments": 99}, "99 segments"),
    ],
)
def test_copies_that_do_not_fit(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        dc.replace(schedules.gpipe(2, 4), **fields)
