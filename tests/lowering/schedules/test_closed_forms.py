"""Every schedule against the formulas that are known of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Schedule, simulate
from tests.lowering.schedules.checker import check, in_flight, most_tasks_in_a_tick

stages_ = st.integers(1, 9)
counts = st.integers(1, 24)
sets = st.integers(1, 4)


def sound(schedule: Schedule, *, tasks_at_once: int = 1) -> schedules.Simulation:
    """What is true of all: complete, in order, and simulated as the slow checker sees it."""
    check(schedule)
    run = simulate(schedule)
    assert run.ticks == len(schedule.ticks)
    assert run.tasks == schedule.num_tasks
    for stage in range(schedule.stages):
        count = in_flight(schedule, stage) if schedule.training else 1
        assert run.in_flight[stage] == count
        assert run.fifo_depth[stage] == count - 1
    for ipu in {ipu for group in schedule.ipus for ipu in group}:
        assert most_tasks_in_a_tick(schedule, ipu) <= tasks_at_once
    assert schedules.from_text(schedules.to_text(schedule)) == schedule
    assert 0 <= run.bubble < 1
    assert 0 < run.utilisation <= 1
    assert run.makespan <= run.synced_makespan
    return run


@given(stages_, sets)
def test_grouped(stages: int, repeats: int) -> None:
    length = 2 * stages
    count = repeats * length
    schedule = schedules.grouped(stages, count)
    run = sound(schedule, tasks_at_once=2)
    assert run.ticks == count + length
    assert run.bubble == pytest.approx(length / (count + length))
    assert run.in_flight == tuple(2 * (stages - 1 - s) + 1 for s in range(stages))
    assert run.fifo_depth == tuple(2 * (stages - 1 - s) for s in range(stages))
    assert schedule.ticks[-1] == ()
    # A new micro-batch in each tick, and position p of the word p ticks later.
    for tick, tasks in enumerate(schedule.ticks):
        for stage, phase, batch in tasks:
            position = stage if phase == "F" else length - 1 - stage
            assert tick == batch + position


@given(stages_, st.integers(0, 20))
def test_grouped_with_io_tiles_takes_any_number(stages: int, more: int) -> None:
    count = 2 * stages + 2 + more
    run = sound(schedules.grouped(stages, count, io_tiles=True), tasks_at_once=2)
    assert run.ticks == count + 2 * stages


@given(stages_, sets)
def test_interleaved(stages: int, repeats: int) -> None:
    count, length = repeats * stages, 2 * stages
    run = sound(schedules.interleaved(stages, count))
    assert run.ticks == length * (count // stages + 1) == 2 * count + length
    assert run.bubble == pytest.approx(length / (2 * count + length))
    assert run.in_flight == tuple(stages - s for s in range(stages))
    assert run.fifo_depth == tuple(stages - 1 - s for s in range(stages))


@given(stages_, counts, st.booleans())
def test_sequential(stages: int, count: int, training: bool) -> None:
    schedule = schedules.sequential(stages, count, training=training)
    run = sound(schedule)
    assert run.ticks == (2 if training else 1) * stages * count
    assert run.bubble == pytest.approx(1 - 1 / stages)
    assert run.in_flight == (1,) * stages
    assert all(len(tick) == 1 for tick in schedule.ticks)


@given(stages_, sets, st.integers(1, 5))
def test_sequential_with_serialized_batches(stages: int, repeats: int, serial: int) -> None:
    count = repeats * serial
    schedule = schedules.sequential(stages, count, batch_serialization=serial, ipus=[0] * stages)
    run = sound(schedule)
    assert (run.ticks, run.bubble) == (2 * stages * count, 0)
    assert run.in_flight == (serial,) * stages
    assert [task.micro_batch for (task,) in schedule.ticks[:serial]] == list(range(serial))
    if serial == 1:
        assert schedule == schedules.sequential(stages, count, ipus=[0] * stages)


@given(st.sampled_from(["grouped", "interleaved"]), stages_, sets)
def test_inference_on_the_ipu_is_a_wave(name: str, stages: int, repeats: int) -> None:
    count = repeats * stages
    run = sound(getattr(schedules, name)(stages, count, training=False))
    assert run.ticks == count + stages
    assert run.bubble == pytest.approx(stages / (count + stages))
    assert run.fifo_depth == (0,) * stages


@given(stages_, counts)
def test_gpipe(stages: int, count: int) -> None:
    run = sound(schedules.gpipe(stages, count))
    assert run.ticks == 2 * (count + stages - 1)
    assert run.bubble == pytest.approx((stages - 1) / (count + stages - 1))
    assert run.in_flight == (count,) * stages


@given(stages_, counts)
def test_one_f_one_b(stages: int, count: int) -> None:
    run = sound(schedules.one_f_one_b(stages, count))
    assert run.ticks == 2 * (count + stages - 1)
    assert run.bubble == pytest.approx((stages - 1) / (count + stages - 1))
    assert run.in_flight == tuple(min(count, stages - s) for s in range(stages))


@pytest.mark.exhaustive
@given(st.integers(1, 5), st.integers(1, 4), sets)
def test_interleaved_one_f_one_b(period: int, each: int, repeats: int) -> None:
    stages, count = period * each, period * repeats
    ipus = [s % period for s in range(stages)]
    run = sound(schedules.interleaved_one_f_one_b(stages, count, ipus=ipus))
    assert run.ticks == 2 * (each * count + period - 1)
    assert run.bubble == pytest.approx((period - 1) / (each * count + period - 1))


@given(stages_, counts)
def test_zero_bubble(stages: int, count: int) -> None:
    schedule = schedules.zero_bubble(stages, count)
    assert schedule.splits_backward
    run = sound(schedule)
    assert run.in_flight == (min(stages, count),) * stages
    if count >= stages:
        assert run.ticks == 3 * count + stages - 1
        assert run.bubble == pytest.approx((stages - 1) / (3 * count + stages - 1))


@given(st.sampled_from(["gpipe", "one_f_one_b"]), stages_, counts)
def test_inference_elsewhere_is_a_wave(name: str, stages: int, count: int) -> None:
    run = sound(getattr(schedules, name)(stages, count, training=False))
    assert run.ticks == count + stages - 1
    assert run.bubble == pytest.approx((stages - 1) / (count + stages - 1))


@given(st.integers(1, 5), st.integers(1, 4), sets)
def test_inference_with_several_stages_on_an_ipu(period: int, each: int, repeats: int) -> None:
    stages, count = period * each, period * repeats
    ipus = [s % period for s in range(stages)]
    run = sound(
        schedules.interleaved_one_f_one_b(stages, count, training=False, ipus=ipus),
    )
    assert run.ticks == each * count + period - 1


@given(st.integers(2, 6), st.data())
def test_stages_may_share_ipus(stages: int, data: st.DataObject) -> None:
    group = st.sets(st.integers(0, 3), min_size=1).map(sorted).map(tuple)
    ipus = data.draw(st.lists(group, min_size=stages, max_size=stages))
    sound(schedules.grouped(stages, 2 * stages, ipus=ipus), tasks_at_once=2 * stages)
    sound(schedules.sequential(stages, 3, ipus=ipus))
    sound(schedules.gpipe(stages, 3, ipus=ipus))
    overlap = schedules.overlap("interleaved", stages, training=False, ipus=ipus)
    run = sound(schedules.interleaved(stages, 2 * overlap, training=False, ipus=ipus))
    assert run.ticks == 3 * stages


@given(st.integers(2, 6), st.integers(1, 3))
def test_the_backward_passes_of_a_tick_come_first(stages: int, repeats: int) -> None:
    made: list[Callable[..., Schedule]] = [schedules.grouped, schedules.interleaved]
    for make in made:
        for tick in make(stages, 2 * stages * repeats).ticks:
            letters = [str(task.phase) for task in tick]
            assert letters == sorted(letters)


def test_long_grids_are_left_out_in_the_middle(golden: Callable[..., None]) -> None:
    schedule = schedules.grouped(40, 800)
    golden(str(schedule))
    assert all(len(line) <= 100 for line in str(schedule).splitlines())
    assert "\n" not in repr(schedule)


@pytest.mark.exhaustive
def test_large_schedules_are_made_and_simulated() -> None:
    for name in ("grouped", "interleaved_one_f_one_b", "zero_bubble"):
        schedule = getattr(schedules, name)(64, 1024)
        assert simulate(schedule).tasks == (3 if name == "zero_bubble" else 2) * 64 * 1024


@given(stages_, counts)
def test_eager_one_f_one_b(stages: int, count: int) -> None:
    run = sound(schedules.eager_one_f_one_b(stages, count))
    assert run.ticks == 2 * (count + stages - 1)
    ahead = (2 * (stages - 1 - stage) + 1 for stage in range(stages))
    assert run.in_flight == tuple(min(count, most) for most in ahead)
    wave = sound(schedules.eager_one_f_one_b(stages, count, training=False))
    assert wave.ticks == count + stages - 1


@given(stages_, counts, st.integers(1, 5), st.integers(1, 5), st.integers(0, 9))
def test_running_ahead_hides_transfers(
    stages: int, count: int, forward: int, backward: int, transfer: int
) -> None:
    seconds = {schedules.Phase.FORWARD: forward, schedules.Phase.BACKWARD: backward}
    eager, plain = (
        simulate(build(stages, count), seconds, transfer=transfer).makespan
        for build in (schedules.eager_one_f_one_b, schedules.one_f_one_b)
    )
    assert eager <= plain


def test_transfers_as_long_as_a_task_are_hidden_but_on_the_way_in_and_out() -> None:
    """With four stages 1F1B waits for them in every round."""
    seconds = dict.fromkeys(schedules.Phase, 1)
    eager, plain = (
        simulate(build(4, 100), seconds, transfer=1).makespan
        for build in (schedules.eager_one_f_one_b, schedules.one_f_one_b)
    )
    assert eager < 2 * (100 + 3) + 2 * 3 + 4
    assert plain > 1.3 * eager


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 12), st.booleans())
def test_looped_bfs(ipus: int, loops: int, more: int, training: bool) -> None:
    count, stages = ipus + more, ipus * loops
    mapping = [stage % ipus for stage in range(stages)]
    run = sound(schedules.looped_bfs(stages, count, ipus=mapping, training=training))
    assert run.ticks == (1 + training) * (loops * count + ipus - 1)
    assert run.in_flight == ((count,) if training else (1,)) * stages


# The fewest ticks for 1, 2, ... 8 micro-batches, by the number of IPUs of a V and the most
# micro-batches that each of its stages' IPU holds: all proven by `schedules.search`.
OPTIMA_OF_V = {
    (1, 1): (6, 12, 18, 24, 30, 36, 42, 48),
    (2, 2): (9, 13, 19, 25, 31, 37, 43, 49),
    (3, 2): (13, 16, 23, 29, 35, 41, 47, 53),
    (3, 3): (13, 16, 20, 26, 32, 38, 44, 50),
    (4, 2): (17, 19, 29, 35, 41, 47, 53, 59),
    (4, 3): (17, 19, 23, 29, 35, 41, 47, 53),
    (4, 4): (17, 19, 23, 27, 33, 39, 45, 51),
}
MEMORY_OF_V = {
    "zbv": lambda ipus: ipus,
    "v_half": lambda ipus: (ipus + 2) // 2,
    "v_min": lambda ipus: (ipus + 4) // 3,
}


@pytest.mark.parametrize("ipus", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MEMORY_OF_V)
def test_schedules_in_a_v_are_the_shortest_under_their_memory(name: str, ipus: int) -> None:
    memory = MEMORY_OF_V[name](ipus)
    for count, optimum in enumerate(OPTIMA_OF_V[ipus, memory], 1):
        run = sound(getattr(schedules, name)(2 * ipus, count))
        assert run.ticks == optimum
        assert max(run.in_flight_per_ipu) <= 2 * memory


@pytest.mark.parametrize(
    ("name", "ipus", "pauses"), [("zbv", 4, 3), ("v_half", 4, 5), ("v_min", 4, 11), ("v_min", 3, 5)]
)
def test_schedules_in_a_v_go_on_without_pauses(name: str, ipus: int, pauses: int) -> None:
    for count in (60, 10**6):
        run = simulate(getattr(schedules, name)(2 * ipus, count))
        assert run.ticks == run.makespan == 6 * count + pauses
        assert max(run.in_flight_per_ipu) <= 2 * MEMORY_OF_V[name](ipus)


@given(stages_, counts)
def test_zero_bubble_with_more_memory(stages: int, count: int) -> None:
    run = sound(schedules.zero_bubble_h2(stages, count))
    assert max(run.in_flight) <= 2 * stages - 1
    first = schedules.zero_bubble_h1(stages, count)
    assert first.ticks == schedules.zero_bubble(stages, count).ticks
    assert run.ticks <= len(first.ticks)
    if count < 2 * stages - 1:
        return
    assert run.ticks == 3 * count + stages - 1
    schedule = schedules.zero_bubble_h2(stages, count)
    for stage in range(stages):  # no IPU pauses between its first and its last task
        busy = [i for i, tick in enumerate(schedule.ticks) if any(t.stage == stage for t in tick)]
        assert busy[-1] - busy[0] + 1 == len(busy) == 3 * count


@given(st.integers(1, 5), sets)
def test_interleaved_zero_bubble(ipus: int, repeats: int) -> None:
    count = ipus * repeats
    whole = simulate(schedules.interleaved_one_f_one_b(2 * ipus, count), {"F": 1, "B": 2})
    run = sound(schedules.interleaved_zero_bubble(2 * ipus, count))
    assert 6 * count + ipus - 1 <= run.makespan <= whole.makespan


@pytest.mark.parametrize("name", MEMORY_OF_V)
def test_ipus_that_are_no_v(name: str) -> None:
    build = getattr(schedules, name)
    with pytest.raises(schedules.ScheduleError, match="even number"):
        build(3, 4)
    with pytest.raises(schedules.ScheduleError, match="stage 3 - s on the same IPU"):
        build(4, 4, ipus=[0, 1, 0, 1])
    with pytest.raises(schedules.ScheduleError, match="some are in several sets"):
        build(4, 4, ipus=[0, (0, 1), (0, 1), 0])
    with pytest.raises(schedules.ScheduleError, match="nothing to split"):
        build(4, 4, training=False)
