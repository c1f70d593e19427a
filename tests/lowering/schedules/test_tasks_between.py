"""Tasks R, O and L: what they wait for, what they save, and what is refused."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, simulate
from tests.between import add_between
from tests.lowering.schedules import checker

F, B, W, R, OUT, IN = Phase
NAMES = ("one_f_one_b", "gpipe", "zero_bubble", "interleaved_one_f_one_b", "zbv", "dualpipe")


def made(name: str, extras: list[str], stages: int, rounds: int) -> Schedule:
    base = getattr(schedules, name)(2 * stages, 4 * stages * rounds)
    return schedules.from_orders(
        "with more",
        add_between(base, extras),
        stages=base.stages,
        micro_batches=base.micro_batches,
        ipus=base.ipus,
    )


some_schedule = st.builds(
    made,
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(["", "R", "OL", "OLR"]), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
)


@given(some_schedule, st.data())
def test_it_is_what_a_slow_checker_says(schedule: Schedule, data: st.DataObject) -> None:
    checker.check(schedule)
    stages = schedule.stages
    row = st.lists(st.integers(0, 9).map(float), min_size=stages, max_size=stages)
    seconds: dict[str, Any] = {phase.value: data.draw(row) for phase in Phase}
    sizes, transfer = data.draw(row), data.draw(row)[1:]
    run = simulate(schedule, seconds, transfer=transfer, sizes=sizes)  # pyright: ignore[reportArgumentType]
    assert run.makespan == checker.makespan(schedule, seconds, transfer)
    assert run.in_flight == tuple(checker.in_flight(schedule, s) for s in range(stages))
    changes = checker.holdings(schedule, seconds, transfer, sizes)
    for ipu, over_time in enumerate(run.bytes):
        for time, held in over_time:
            assert held == sum(more for at, where, more in changes if where == ipu and at <= time)
        assert {at for at, _ in over_time} <= {0, *(at for at, where, _ in changes if where == ipu)}


@given(some_schedule)
def test_texts_and_folded_ticks_are_the_same(schedule: Schedule) -> None:
    assert schedules.from_text(schedules.to_text(schedule)) == schedule
    unfolded = dc.replace(schedule, ticks=tuple(schedule.ticks))
    assert simulate(unfolded) == simulate(schedule)


def test_recomputing_keeps_one_micro_batch_at_a_time() -> None:
    base = schedules.gpipe(2, 6)
    plain, again, away = (
        schedules.from_orders("x", add_between(base, [extra]), stages=2, micro_batches=6)
        for extra in ("", "R", "OL")
    )
    times = {F: 1, B: 2, R: 1, OUT: 0, IN: 0}
    most = [
        max(held for _, held in simulate(schedule, times, sizes=5.0).bytes[0])
        for schedule in (plain, again, away)
    ]
    assert most == [30, 5, 5]
    assert simulate(plain, times).makespan == 3 * 6 + 3
    assert simulate(again, times).makespan == 4 * 6 + 3  # stage 0 does so while it waits


def test_what_a_task_needs() -> None:
    schedule = made("one_f_one_b", ["R", "OLR"], 1, 1)
    assert schedule.needs(Task(0, R, 2)) == (Task(0, F, 2),)
    assert schedule.needs(Task(0, B, 2)) == (Task(0, R, 2), Task(1, B, 2))
    assert schedule.needs(Task(1, OUT, 2)) == (Task(1, F, 2),)
    assert schedule.needs(Task(1, IN, 2)) == (Task(1, OUT, 2),)
    assert schedule.needs(Task(1, R, 2)) == (Task(1, IN, 2),)
    assert schedule.needs(Task(1, B, 2)) == (Task(1, R, 2),)


@pytest.mark.parametrize(
    ("order", "message", "cell"),
    [
        ("0R0 0F0 0B0", "0R0 on IPU 0 waits for 0F0", ">R0"),
        ("0F0 0B0 0R0", "0B0 on IPU 0 waits for 0R0", ">B0"),
        ("0F0 0L0 0O0 0B0", "0L0 on IPU 0 waits for 0O0", ">L0"),
        ("0O0 0F0 0L0 0B0", "0O0 on IPU 0 waits for 0F0", ">O0"),
        ("0F0 0O0 0B0 0L0", "0B0 on IPU 0 waits for 0L0", ">B0"),
        ("0F0 0O0 0R0 0L0 0B0", "0R0 on IPU 0 waits for 0L0", ">R0"),
        ("0F0 0B0 0O0 0L0", "0B0 on IPU 0 waits for 0L0", ">B0"),
        ("0F0 0O0 0B0", "0L0 is missing in the order of IPU 0", ""),
        ("0F0 0L0 0B0", "0O0 is missing in the order of IPU 0", ""),
        ("0F0 0R0 0R0 0B0", "0R0 is twice in the order of IPU 0", ""),
    ],
)
def test_orders_that_are_refused(order: str, message: str, cell: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedules.from_orders("x", [order.split()], stages=1, micro_batches=1)
    assert message in str(caught.value)
    assert cell in caught.value.grid
    text = "schedule x: stages=1 micro_batches=1 training=yes ipus=0\n"
    written = schedules.from_text(text + order.replace(" ", "\n"))
    with pytest.raises(ScheduleError, match=r"0[FBROL]0"):
        simulate(written)


def test_a_stage_has_them_for_all_micro_batches_or_for_none() -> None:
    with pytest.raises(ScheduleError, match="0R1 is missing in the order of IPU 0") as caught:
        schedules.from_orders("x", ["0F0 0R0 0B0 0F1 0B1".split()], stages=1, micro_batches=2)
    assert "or none of R" in str(caught.value)


def test_inference_has_none() -> None:
    with pytest.raises(ScheduleError, match="0R0"):
        schedules.from_orders("x", [["0F0", "0R0"]], stages=1, micro_batches=1, training=False)
    text = "schedule x: stages=1 micro_batches=1 training=no ipus=0\n0F0\n0R0\n"
    written = schedules.from_text(text)
    with pytest.raises(ScheduleError, match="0R0, which inference"):
        simulate(written)


def test_times_must_be_given() -> None:
    schedule = made("one_f_one_b", ["R", ""], 1, 1)
    with pytest.raises(ScheduleError, match="says nothing of RECOMPUTE"):
        simulate(schedule, {F: 1, B: 2})
    assert simulate(schedule, {F: 1, B: 2, R: [1, 0]}).makespan > 0


def test_copies_of_stages_have_them_too() -> None:
    schedule = made("dualpipe", ["R", "OL"], 2, 1)
    assert len(schedule.copies) == 2
    assert schedule.kinds[-6:] == ((R, 0), (R, 2), (OUT, 1), (OUT, 3), (IN, 1), (IN, 3))


def test_drawings_tell_them_apart() -> None:
    schedule = made("one_f_one_b", ["R", "OL"], 1, 1)
    html = schedule._repr_html_()
    for words in ("forward again", "to host memory", "from host memory"):
        assert words in html
