"""Dry runs: what they measure, and which schedules they refuse."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, simulate
from tests.lowering.schedules import checker

F, B, W = Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHTS


def of_ticks(*ticks: str, **options: object) -> Schedule:
    fields = {
        "name": "mine",
        "stages": 2,
        "micro_batches": 1,
        "training": True,
        "ipus": ((0,), (1,)),
    } | options
    rows = tuple(tuple(map(Task.parse, tick.split())) for tick in ticks)
    return Schedule(**fields, ticks=rows)


def refused(*ticks: str, **options: object) -> str:
    with pytest.raises(ScheduleError) as caught:
        simulate(of_ticks(*ticks, **options))
    return str(caught.value)


def test_tasks_of_one_ipu_may_follow_in_a_tick() -> None:
    run = simulate(of_ticks("0F0 1F0 1B0 0B0", ipus=((4,), (4,))))
    assert (run.ticks, run.bubble, run.in_flight) == (1, 0.0, (1, 1))


@pytest.mark.parametrize(
    ("ticks", "options", "words"),
    [
        (("0F0 1F0", "1B0", "0B0"), {}, "1F0 in tick 0 needs 0F0, which other IPUs run in the"),
        (("1F0", "0F0", "1B0", "0B0"), {}, "1F0 in tick 0 needs 0F0, which runs in tick 1"),
        (("0F0", "1F0", "0B0", "1B0"), {}, "0B0 in tick 2 needs 1B0, which runs in tick 3"),
        (("0F0", "1F0", "0B0"), {}, "0B0 in tick 2 needs 1B0, which never runs"),
        (("0F0", "1F0", "1B0"), {}, "0B0 never runs"),
        (("0F0", "1F0", "1B0", "0B0", "0B0"), {}, "tick 4 runs 0B0 again after tick 3"),
        (("0F0 0F0", "1F0", "1B0", "0B0"), {}, "tick 0 runs 0F0 again after tick 0"),
        (("0F0", "2F0"), {}, "tick 1 runs 2F0, which training with 2 stages and 1 micro-batches"),
        (("0F0", "1F1"), {}, "tick 1 runs 1F1, which"),
        (("0F0", "0B0"), {"training": False}, "tick 1 runs 0B0, which inference"),
        (("1F0 0F0",), {"ipus": ((0,), (0,))}, "1F0 in tick 0 needs 0F0, which is dispatched aft"),
        (("0F0 1F0",), {"ipus": ((0,), (0, 1))}, "1F0 in tick 0 needs 0F0, which other IPUs run"),
        (("0F0", "1F0", "1B0", "0B0 0W0"), {}, "1W0 never runs"),
        (("0F0", "1F0", "1W0", "1B0", "0B0 0W0"), {}, "1W0 in tick 2 needs 1B0, which runs in ti"),
        ((), {}, "0F0 never runs"),
    ],
)
def test_schedules_that_no_pipeline_can_follow(
    ticks: tuple[str, ...], options: dict[str, object], words: str
) -> None:
    assert words in refused(*ticks, **options)


@pytest.mark.parametrize("task", [Task(-1, F, 0), Task(0, F, -1), Task(0, "X", 0)])
def test_tasks_that_cannot_be(task: Task) -> None:
    schedule = of_ticks("0F0", "1F0", training=False)
    with pytest.raises(ScheduleError, match="tick 0 runs"):
        simulate(dc.replace(schedule, ticks=((task,), *schedule.ticks)))


def test_the_place_of_a_mistake_is_drawn(golden: Callable[..., None]) -> None:
    schedule = schedules.one_f_one_b(4, 40)
    ticks = [list(tick) for tick in schedule.ticks]
    moved = Task(2, B, 20)
    at = next(i for i, tick in enumerate(ticks) if moved in tick)
    ticks[at].remove(moved)
    ticks[at - 1].append(moved)
    with pytest.raises(ScheduleError) as caught:
        simulate(dc.replace(schedule, ticks=tuple(map(tuple, ticks))))
    golden(str(caught.value))


def test_a_stage_that_does_not_exist_is_drawn(golden: Callable[..., None]) -> None:
    golden(refused("0F0", "1F0 3F0", "1B0", "0B0"))


@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 5), st.integers(1, 5))
def test_times_of_one_f_one_b(stages: int, count: int, forward: int, backward: int) -> None:
    run = simulate(schedules.one_f_one_b(stages, count), {F: forward, B: backward})
    assert run.makespan == (count + stages - 1) * (forward + backward)
    assert run.utilisation == pytest.approx(count / (count + stages - 1))


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))
def test_times_of_grouped(stages: int, repeats: int, forward: int, backward: int) -> None:
    count = 2 * stages * repeats
    run = simulate(schedules.grouped(stages, count), {F: forward, B: backward})
    # All ticks but `stages` of forward tasks alone, as many of backward tasks alone, and the empty
    # one are full.
    assert run.synced_makespan == (count + stages - 1) * (forward + backward)
    assert run.makespan <= run.synced_makespan


def test_zero_bubble_idles_a_third_of_one_f_one_b() -> None:
    stages, count = 4, 16
    thirds = simulate(schedules.zero_bubble(stages, count), {F: 1, B: 1, W: 1})
    whole = simulate(schedules.one_f_one_b(stages, count), {F: 1, B: 2})
    assert thirds.makespan == 3 * count + stages - 1
    assert whole.makespan == 3 * count + 3 * (stages - 1)


def test_the_slowest_stage_sets_the_pace() -> None:
    schedule = schedules.gpipe(3, 10, training=False)
    assert simulate(schedule, {F: [1, 5, 1]}).makespan == 1 + 10 * 5 + 1
    assert simulate(schedule, {F: [1, 5, 1]}).synced_makespan == 1 + 10 * 5 + 1
    assert simulate(schedule, {"F": 0}).makespan == 0


@given(st.data())
def test_transfers_delay_what_goes_to_another_ipu(data: st.DataObject) -> None:
    stages, rounds = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    build = data.draw(
        st.sampled_from(
            (
                schedules.grouped,
                schedules.interleaved,
                schedules.gpipe,
                schedules.one_f_one_b,
                schedules.zero_bubble,
                schedules.interleaved_one_f_one_b,
            )
        )
    )
    if build is schedules.interleaved_one_f_one_b:
        stages *= 2
    schedule = build(stages, 2 * stages * rounds)
    numbers = st.integers(0, 9).map(float)
    seconds = {
        letter: data.draw(st.lists(numbers, min_size=stages, max_size=stages)) for letter in "FBW"
    }
    transfer = data.draw(st.lists(numbers, min_size=stages - 1, max_size=stages - 1))
    phases = {Phase(letter): row for letter, row in seconds.items()}
    run = simulate(schedule, phases, transfer=transfer)
    assert run.makespan == checker.makespan(schedule, seconds, transfer)
    assert run.synced_makespan == simulate(schedule, phases).synced_makespan


@given(st.data())
def test_bytes_over_time(data: st.DataObject) -> None:
    stages, rounds = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    names = ("gpipe", "one_f_one_b", "zero_bubble", "interleaved_one_f_one_b", "sequential")
    name, training = data.draw(st.sampled_from(names)), data.draw(st.booleans())
    stages *= 2
    schedule = schedules.build(
        name,
        stages=stages,
        micro_batches=stages * rounds,
        training=training or name == "zero_bubble",
        ipus=data.draw(st.sampled_from([None, [0] * stages])) if name == "sequential" else None,
    )
    rows = [st.lists(st.integers(1, 9).map(float), min_size=n, max_size=n) for n in range(9)]
    seconds = {letter: data.draw(rows[stages]) for letter in "FBW"}
    sizes, transfer = data.draw(rows[stages]), data.draw(rows[stages - 1])
    phases = {Phase(letter): row for letter, row in seconds.items()}
    run = simulate(schedule, phases, transfer=transfer, sizes=sizes)
    changes = checker.holdings(schedule, seconds, transfer, sizes)
    for ipu, over_time in enumerate(run.bytes):
        assert over_time[0][0] == 0
        for time, held in over_time:
            assert held == sum(more for at, where, more in changes if where == ipu and at <= time)
        moments = {at for at, where, _ in changes if where == ipu}
        assert {time for time, _ in over_time} <= {0.0, *moments}
        assert over_time[-1] == (max(moments), 0.0) or not training
    assert dc.replace(run, bytes=()) == simulate(schedule, phases, transfer=transfer)


@pytest.mark.parametrize("name", ["one_f_one_b", "gpipe", "interleaved_one_f_one_b", "zero_bubble"])
def test_the_most_in_flight_on_an_ipu_is_the_most_that_it_keeps(name: str) -> None:
    schedule = schedules.build(name, stages=4, micro_batches=24, training=True)
    run = simulate(schedule, sizes=1)
    assert run.in_flight_per_ipu == tuple(max(held for _, held in row) for row in run.bytes)


def test_stages_of_an_ipu_are_in_flight_together() -> None:
    run = simulate(of_ticks("0F0 1F0", "1B0 0B0", ipus=((0,), (0,))))
    assert (run.in_flight, run.in_flight_per_ipu) == ((1, 1), (2,))
    run = simulate(of_ticks("0F0 1F0", training=False, ipus=((0,), (0,))))
    assert (run.in_flight, run.in_flight_per_ipu) == ((1, 1), (1,))
    million = simulate(schedules.interleaved_one_f_one_b(8, 10**6))
    assert million.in_flight_per_ipu == (11, 9, 7, 5)


@pytest.mark.parametrize("sizes", [-1, float("inf"), [1], "x", [1, None, 2]])
def test_sizes_that_cannot_be(sizes: object) -> None:
    with pytest.raises(ScheduleError, match="`sizes`"):
        simulate(schedules.gpipe(3, 2), sizes=sizes)


@pytest.mark.parametrize("transfer", [-1, float("inf"), [1], "x", None, [1, None]])
def test_transfers_that_cannot_be(transfer: object) -> None:
    with pytest.raises(ScheduleError, match="`transfer`"):
        simulate(schedules.gpipe(3, 2), transfer=transfer)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({F: 1}, "says nothing of BACKWARD"),
        ({F: 1, B: -1}, "BACKWARD: -1"),
        ({F: [1, 2, 3], B: 1}, r"FORWARD: \[1, 2, 3\]"),
        ({F: float("nan"), B: 1}, "FORWARD: nan"),
    ],
)
def test_durations_that_cannot_be(seconds: dict[Phase, object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        simulate(schedules.gpipe(2, 2), seconds)
