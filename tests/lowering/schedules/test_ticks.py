"""Schedules that are kept as rounds, against the same schedules tick by tick."""

from __future__ import annotations

import dataclasses as dc
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import (
    Phase,
    Run,
    Schedule,
    ScheduleError,
    Task,
    Ticks,
    list_schedules,
    one_task_per_tick,
    simulate,
)
from lowering.schedules.earliest_ticks import place_tasks_earliest
from lowering.schedules.ticks import fold_repeated_ticks
from tests.lowering.schedules.checker import check

F, B = Phase.FORWARD, Phase.BACKWARD
MILLION = 10**6
NAMES = [schedule.name for schedule in list_schedules()]
SPLIT = [schedule.name for schedule in schedules.list_schedules() if schedule.splits_backward]


def made(name: str, stages: int, repeats: int, spread: int) -> Schedule:
    """A schedule of any kind; `spread` says how stages share IPUs."""
    count = 2 * stages * repeats
    ipus = {
        0: list(range(stages)),
        1: [stage // 2 for stage in range(stages)],
        2: [stage % max(1, stages // 2) for stage in range(stages)],
        3: [(2 * stage, 2 * stage + 1) for stage in range(stages)],
    }[spread if name in ("grouped", "sequential", "gpipe") else 0]
    return getattr(schedules, name)(stages, count, ipus=ipus)


some_schedule = st.builds(
    made, st.sampled_from(NAMES), st.integers(1, 4), st.integers(1, 12), st.integers(0, 3)
)


def unfolded(schedule: Schedule) -> Schedule:
    """Every tick written down."""
    return dc.replace(schedule, ticks=tuple(schedule.ticks))


@given(some_schedule, st.data())
def test_rounds_that_are_skipped_change_nothing(schedule: Schedule, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, 9), min_size=schedule.stages, max_size=schedule.stages)
    seconds = {phase: data.draw(some) for phase in Phase}
    assert simulate(schedule, seconds) == simulate(unfolded(schedule), seconds)
    assert simulate(schedule) == simulate(unfolded(schedule))


@given(some_schedule)
def test_orders_and_texts_are_folded_to_the_same(schedule: Schedule) -> None:
    check(schedule)
    ipus = sorted({ipu for group in schedule.ipus for ipu in group})
    orders = {
        ipu: [t for tick in schedule.ticks for t in tick if ipu in schedule.ipus[t.stage]]
        for ipu in ipus
    }
    again = schedules.from_orders(
        "again",
        orders,
        stages=schedule.stages,
        micro_batches=schedule.micro_batches,
        ipus=schedule.ipus,
    )
    check(again)
    assert schedules.from_text(schedules.to_text(schedule)) == schedule


def test_orders_are_placed_one_by_one_or_in_rounds_alike() -> None:
    schedule = schedules.gpipe(4, 50, ipus=[0, 1, 0, 1])
    orders = [
        [Task(stage, phase, i) for stage, phase in passed for i in range(50)]
        for passed in ([(0, F), (2, F), (2, B), (0, B)], [(1, F), (3, F), (3, B), (1, B)])
    ]
    made = schedules.from_orders("g", orders, stages=4, micro_batches=50, ipus=[0, 1, 0, 1])
    # Alone in its round, no task is repeated: nothing is skipped.
    single = {
        ipu: Ticks(one_task_per_tick([task]) for task in order) for ipu, order in enumerate(orders)
    }
    assert place_tasks_earliest("g", single, made.ipus) == schedule.ticks == made.ticks


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=6), st.integers(0, 2))
def test_folding_keeps_the_ticks(parts: list[tuple[int, int]], step: int) -> None:
    ticks: list[tuple[Task, ...]] = []
    for tasks, times in parts:
        round_of = tuple(Task(s, F, s) for s in range(tasks))
        ticks += itertools.chain(
            *(Run((round_of,), times, step).ticks_of_round(i) for i in range(times))
        )
    made = fold_repeated_ticks(ticks)
    assert made == tuple(ticks) == Ticks([Run(tuple(ticks))])
    assert [made[i] for i in range(len(ticks))] == ticks
    assert made[::-1] == tuple(reversed(made)) == tuple(ticks[::-1])


def test_long_repetitions_are_written_down_once() -> None:
    ticks = [(Task(0, F, i), Task(1, F, i - 1)) for i in range(1, 1000)]
    (run,) = fold_repeated_ticks(ticks).runs
    assert (len(run.ticks), run.times, run.step) == (1, 999, 1)
    with pytest.raises(IndexError):
        fold_repeated_ticks(ticks)[999]


def test_equal_ticks_are_equal_however_they_are_cut() -> None:
    whole = Ticks([one_task_per_tick([Task(0, F, 0)], 6, 1)])
    parts = Ticks(
        [
            one_task_per_tick([Task(0, F, 0), Task(0, F, 1)], 2, 2),
            one_task_per_tick([Task(0, F, 4)], 2, 1),
        ]
    )
    assert whole == parts
    assert hash(whole) == hash(parts)
    assert whole != Ticks([one_task_per_tick([Task(0, F, 0)], 5, 1)])
    assert whole != 6


@pytest.mark.parametrize(
    ("name", "training"),
    [
        (name, training)
        for name, training in itertools.product(NAMES, [True, False])
        if training or name not in SPLIT
    ],
)
def test_a_million_micro_batches(name: str, training: bool) -> None:
    """What takes no longer than a few has the closed form of the many."""
    schedule = getattr(schedules, name)(4, MILLION, training=training)
    assert sum(len(run.ticks) for run in schedule.ticks.runs) < 100
    run, kinds = simulate(schedule), 3 if name in SPLIT else 1 + training
    assert run.tasks == schedule.num_tasks == kinds * 4 * MILLION
    passes = 1 + training
    assert run.ticks == len(schedule.ticks)
    assert (
        run.ticks
        == {
            "grouped": MILLION + 4 * passes,
            "interleaved": passes * 4 * (MILLION // 4 + 1),
            "sequential": passes * 4 * MILLION,
            "gpipe": passes * (MILLION + 3),
            "one_f_one_b": passes * (MILLION + 3),
            "eager_one_f_one_b": passes * (MILLION + 3),
            "zero_bubble": 3 * MILLION + 3,
            "zero_bubble_h1": 3 * MILLION + 3,
            "zero_bubble_h2": 3 * MILLION + 3,
            "interleaved_zero_bubble": 6 * MILLION + 1,
            "zbv": 6 * MILLION + 1,
            "v_half": 6 * MILLION + 1,
            "v_min": 6 * MILLION + 1,
            "interleaved_one_f_one_b": passes * (2 * MILLION + 1),
            "looped_bfs": passes * (2 * MILLION + 1),
        }[name]
    )


def test_the_slowest_stage_sets_the_pace_of_a_million() -> None:
    schedule = schedules.gpipe(3, MILLION, training=False)
    assert simulate(schedule, {F: [1, 5, 1]}).makespan == 1 + 5 * MILLION + 1
    assert simulate(schedule, {F: [0.5, 0.25, 0.125]}).makespan == 0.5 * MILLION + 0.375
    # What one IPU makes waits for as long as another does something else.
    dealt = schedules.gpipe(4, MILLION, training=False, ipus=[0, 1, 0, 1])
    assert simulate(dealt, {F: [1, 3, 1, 1]}).makespan == 1 + 3 * MILLION + MILLION
    assert simulate(dealt, {F: [3, 1, 1, 3]}).makespan == 3 * MILLION + 1 + 3 * MILLION


def test_a_mistake_in_a_late_round_is_the_first_one() -> None:
    ticks = [(Task(0, F, i),) for i in range(50)] + [(Task(1, F, i),) for i in range(60)]
    with pytest.raises(ScheduleError, match="tick 100 runs 1F50, which inference with 2 stages"):
        simulate(
            Schedule(
                name="late",
                stages=2,
                micro_batches=50,
                training=False,
                ipus=((0,), (1,)),
                ticks=fold_repeated_ticks(ticks),
            )
        )


@pytest.mark.parametrize(
    ("stages", "micro_batches", "words"),
    [
        (4, 10**18, "1000000000000000000 micro-batches"),
        (4, 10**7 + 4, "at most 10,000,000"),
        (10**9, 4, "1000000000 stages\n  fix:   use at least one and at most 1,024"),
        (4, -8, "-8 micro-batches"),
        (True, 4, "True stages"),
        (4, 8.0, "8.0 micro-batches"),
        (4, "8", "'8' micro-batches"),
        (None, 8, "None stages"),
        pytest.param(4, 10**5000, "2^16609 and more micro-batches", id="digits"),
    ],
)
def test_absurd_sizes(stages: Any, micro_batches: Any, words: str) -> None:
    makers = [*NAMES, "interleaved_one_f_one_b"]
    for make in [getattr(schedules, name) for name in makers]:
        with pytest.raises(ScheduleError) as caught:
            make(stages, micro_batches)
        assert words in str(caught.value)
    with pytest.raises(ScheduleError):
        schedules.from_orders("mine", [], stages=stages, micro_batches=micro_batches)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("micro_batches=1" + "0" * 17, "100000000000000000 micro-batches"),
        ("micro_batches=1" + "0" * 5000, "the text of a schedule begins with"),
    ],
)
def test_absurd_sizes_in_texts(text: str, words: str) -> None:
    header = f"schedule mine: stages=2 {text} training=yes ipus=0/1"
    with pytest.raises(ScheduleError) as caught:
        schedules.from_text(header)
    assert words in str(caught.value)
    with pytest.raises(ScheduleError, match="is no task"):
        Task.parse("9" * 5000 + "F0")


def endless(kind: str) -> Any:
    """Orders without an end."""
    forward = (f"0F{i}" for i in itertools.count())
    return {
        "numbers": [itertools.count()] * 2,
        "a cycle": [itertools.cycle(["0F0", "0B0"])] * 2,
        "one label": [itertools.repeat((0, "F", 0))] * 2,
        "micro-batches": [forward] * 2,
        "orders": itertools.repeat(["0F0", "0B0"]),
        "ipus": itertools.repeat(itertools.count()),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("numbers", "0 is no task"),
        ("a cycle", "0F0 is twice in the order of IPU 0"),
        ("one label", "0F0 is twice in the order of IPU 0"),
        ("micro-batches", "0F8 in the order of IPU 0 is no task of this IPU"),
        ("orders", "more than 2 orders for the 2 IPUs [0, 1]"),
        ("ipus", "more than 2 orders for the 2 IPUs [0, 1]"),
    ],
)
def test_orders_without_an_end(kind: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedules.build(lambda s, m: endless(kind), stages=2, micro_batches=8, training=True)
    assert words in str(caught.value)
    with pytest.raises(ScheduleError) as caught:
        schedules.from_orders("mine", endless(kind), stages=2, micro_batches=8)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "ipus", [itertools.repeat(0), [itertools.count(), 1], [range(10**12), 1], 3, [0.5, 1]]
)
def test_ipus_without_an_end(ipus: Any) -> None:
    with pytest.raises(ScheduleError, match=r"IPUs|ipus"):
        schedules.gpipe(2, 4, ipus=ipus)


def test_ticks_without_an_end() -> None:
    with pytest.raises(ScheduleError, match="count as the ticks of a schedule"):
        dc.replace(schedules.gpipe(2, 4), ticks=itertools.count())
