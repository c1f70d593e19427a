"""Times of pipelines against the simulator, closed forms, and timelines computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.ground import InternalError
from lowering.machine import trace
from lowering.machine.programs import Timeline, compute_timeline, find_tick_patterns
from lowering.machine.trace import PHASES, Steps
from lowering.schedules import Phase, Schedule, Task, simulate

stages_ = st.integers(1, 6)
sets = st.integers(1, 4)


def made(name: str, stages: int, repeats: int, spread: int) -> Schedule:
    """A schedule of any kind; `spread` puts stages on IPUs of their own, shared, or several."""
    count = 2 * stages * repeats
    if name in ("gpipe", "one_f_one_b", "zero_bubble"):
        return getattr(schedules, name)(stages, count)
    placements = {
        0: None,
        1: [stage // 2 for stage in range(stages)],
        2: [(2 * stage, 2 * stage + 1) for stage in range(stages)],
        3: [(stage, stage + 1) for stage in range(stages)],
        4: [10 * (stage + 1) for stage in range(stages)],
    }
    return getattr(schedules, name)(stages, count, ipus=placements[spread])


schedules_ = st.one_of(
    st.builds(made, st.sampled_from(["grouped", "sequential"]), stages_, sets, st.integers(0, 4)),
    st.builds(
        made,
        st.sampled_from(["interleaved", "gpipe", "one_f_one_b", "zero_bubble"]),
        stages_,
        sets,
        st.just(0),
    ),
    st.builds(made, st.just("interleaved"), stages_, sets, st.sampled_from([0, 2, 4])),
)


def run(schedule: Schedule, seconds: dict[Phase, list[int]], cost: int = 0) -> Timeline:
    cycles = {
        (stage, phase): seconds[phase][stage] for phase in Phase for stage in range(schedule.stages)
    }
    return compute_timeline(schedule, cycles, cost)


def even(schedule: Schedule, cycles: int = 1, cost: int = 0) -> Timeline:
    return run(schedule, {phase: [cycles] * schedule.stages for phase in Phase}, cost)


@given(schedules_, st.data())
def test_it_is_what_the_simulator_says(schedule: Schedule, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, 1000), min_size=schedule.stages, max_size=schedule.stages)
    seconds = {phase: data.draw(some) for phase in Phase}
    cost = data.draw(st.integers(0, 50))
    timeline, wanted = run(schedule, seconds, cost), simulate(schedule, seconds)
    ticks = len(schedule.ticks)
    assert timeline.bubble_fraction == wanted.bubble
    assert timeline.makespan == wanted.synced_makespan + cost * ticks
    assert timeline.makespan == timeline.tick_cycles.sum()
    assert timeline.ipus.tolist() == sorted({ipu for group in schedule.ipus for ipu in group})
    for ipu, busy in zip(timeline.ipus.tolist(), timeline.busy.tolist(), strict=True):
        assert busy == sum(
            seconds[task.phase][task.stage]
            for tick in schedule.ticks
            for task in tick
            if ipu in schedule.ipus[task.stage]
        )
    if timeline.makespan:
        total = len(timeline.ipus) * timeline.makespan
        assert timeline.utilisation == pytest.approx(timeline.busy.sum() / total)


@given(schedules_, st.data())
def test_tasks_follow_each_other(schedule: Schedule, data: st.DataObject) -> None:
    some = st.lists(st.integers(1, 99), min_size=schedule.stages, max_size=schedule.stages)
    seconds = {phase: data.draw(some) for phase in Phase}
    timeline = run(schedule, seconds, 5)
    free = dict.fromkeys(timeline.ipus.tolist(), 0)
    i = 0
    for tick, tasks in enumerate(schedule.ticks):
        assert timeline.tick_start[tick] == timeline.tick_cycles[:tick].sum()
        for task in tasks:
            start, length = int(timeline.start[i]), seconds[task.phase][task.stage]
            ipus = schedule.ipus[task.stage]
            begun = int(timeline.tick_start[tick])
            assert start == max(begun, *(free[ipu] for ipu in ipus))
            assert start + length <= begun + timeline.tick_work[tick]
            free |= dict.fromkeys(ipus, start + length)
            assert timeline.bodies[timeline.which[i]] == (task.stage, task.phase)
            assert timeline.stage[i] == task.stage
            assert timeline.micro_batch[i] == task.micro_batch
            assert timeline.tick[i] == tick
            assert PHASES[timeline.phase[i]] == ("fwd" if task.phase == "F" else "bwd")
            i += 1
    assert i == len(timeline.which)


@given(stages_, sets)
def test_grouped(stages: int, repeats: int) -> None:
    length = 2 * stages
    count = repeats * length
    schedule = schedules.grouped(stages, count)
    timeline = even(schedule, 7, 3)
    assert timeline.bubble_fraction == pytest.approx(length / (count + length), rel=1e-12)
    # The last stage does two tasks in all ticks but its first and last; the last tick is empty.
    assert timeline.makespan == 3 * (count + length) + 7 * (2 * count + length - 2)
    assert timeline.busy.tolist() == [14 * count] * stages
    assert simulate(schedule).fifo_depth == tuple(2 * (stages - 1 - s) for s in range(stages))


@given(stages_, sets)
def test_interleaved(stages: int, repeats: int) -> None:
    count, length = repeats * stages, 2 * stages
    schedule = schedules.interleaved(stages, count)
    timeline = even(schedule, 7)
    assert len(timeline.tick_cycles) == length * (count // stages + 1)
    assert timeline.bubble_fraction == pytest.approx(length / (2 * count + length), rel=1e-12)
    assert simulate(schedule).fifo_depth == tuple(stages - 1 - s for s in range(stages))


@given(stages_, st.integers(1, 20), st.integers(0, 9))
def test_sequential(stages: int, count: int, cost: int) -> None:
    schedule = schedules.sequential(stages, count)
    timeline = even(schedule, 7, cost)
    assert timeline.makespan == 2 * stages * count * (7 + cost)
    assert timeline.bubble_fraction == pytest.approx(1 - 1 / stages)
    assert timeline.utilisation == pytest.approx(7 / (7 + cost) / stages)
    assert simulate(schedule).fifo_depth == (0,) * stages


def test_by_hand() -> None:
    """Two stages, four micro-batches, grouped: F takes 10 and 20, B 30 and 5."""
    schedule = schedules.grouped(2, 4)
    cycles = {
        (0, Phase.FORWARD): 10,
        (1, Phase.FORWARD): 20,
        (0, Phase.BACKWARD): 30,
        (1, Phase.BACKWARD): 5,
    }
    timeline = compute_timeline(schedule, cycles, np.array([1, 1, 1, 1, 1, 1, 1, 0]))
    assert timeline.tick_work.tolist() == [10, 20, 25, 40, 30, 30, 30, 0]
    assert timeline.tick_start.tolist() == [0, 11, 32, 58, 99, 130, 161, 192]
    assert timeline.makespan == 192
    assert timeline.busy.tolist() == [160, 100]
    assert timeline.utilisation == pytest.approx(260 / 384)
    starts = {
        f"{stage}{'FB'[phase]}{micro_batch}": start
        for stage, phase, micro_batch, start in zip(
            timeline.stage, timeline.phase, timeline.micro_batch, timeline.start, strict=True
        )
    }
    assert starts["1B1"] == 58
    assert starts["1F2"] == 63  # after the backward task of the older micro-batch
    assert starts["0B0"] == 58
    assert starts["0F3"] == 88


def test_stages_that_share_some_ipus_wait_for_each_other() -> None:
    tasks = (Task(0, Phase.FORWARD, 0), Task(1, Phase.FORWARD, 1), Task(2, Phase.FORWARD, 2))
    schedule = Schedule(
        name="by hand",
        stages=3,
        micro_batches=3,
        training=False,
        ipus=((0,), (0, 1), (1,)),
        ticks=(tasks,),
    )
    cycles = {(stage, Phase.FORWARD): 10 * (stage + 1) for stage in range(3)}
    timeline = compute_timeline(schedule, cycles)
    assert timeline.start.tolist() == [0, 10, 30]
    assert (timeline.makespan, timeline.busy.tolist()) == (60, [30, 50])


def test_weights_have_bodies_of_their_own() -> None:
    timeline = even(schedules.zero_bubble(3, 6))
    assert [phase for _, phase in timeline.bodies] == ["F"] * 3 + ["B"] * 3 + ["W"] * 3
    assert np.bincount(timeline.which).tolist() == [6] * 9
    assert np.bincount(timeline.phase).tolist() == [18, 36]


def test_it_fits_a_trace() -> None:
    schedule = schedules.grouped(2, 4)
    timeline = even(schedule, 10, 2)
    bodies = [
        trace.build_block([(stage, "compute", f"{phase}", "", 0, 10)])
        for stage, phase in timeline.bodies
    ]
    tree = trace.build_tasks(
        bodies,
        timeline.which,
        timeline.start,
        timeline.stage,
        timeline.micro_batch,
        timeline.phase,
    )
    assert trace.count_busy_cycles(tree, 2).sum(axis=1).tolist() == timeline.busy.tolist()
    assert tree.span <= timeline.makespan
    first = Steps(tree)[0]
    assert (first.stage, first.micro_batch, first.phase, first.start_cycle) == (0, 0, "fwd", 0)


@given(schedules_)
def test_patterns_give_each_tick_its_tasks(schedule: Schedule) -> None:
    patterns, which = find_tick_patterns(schedule)
    assert len(set(patterns)) == len(patterns)
    assert [patterns[i] for i in which] == [
        tuple((task.stage, task.phase) for task in tick) for tick in schedule.ticks
    ]


def test_a_long_pipeline_has_few_patterns() -> None:
    assert len(find_tick_patterns(schedules.grouped(8, 1600))[0]) == 32
    assert len(find_tick_patterns(schedules.sequential(8, 1600))[0]) == 16


@pytest.mark.parametrize("cycles", [{}, {(0, Phase.FORWARD): -1}])
def test_missing_durations_are_our_mistake(cycles: dict[tuple[int, Phase], int]) -> None:
    with pytest.raises(InternalError, match="missing or negative"):
        compute_timeline(schedules.sequential(1, 1, training=False), cycles)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["grouped", "interleaved", "sequential", "zero_bubble"])
def test_large_pipelines_have_every_task(name: str) -> None:
    schedule = getattr(schedules, name)(64, 1024)
    timeline = even(schedule, 100, 10)
    assert len(timeline.which) == (3 if name == "zero_bubble" else 2) * 64 * 1024
