"""Tables of what tasks wait for: pipelines that branch, and sequences in segments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, simulate
from tests.between import add_between
from tests.lowering.schedules import checker

BRANCHES = {"2F": ["0F"], "3F": ["1F", "2F"]}


def all_forward_first(stages: int, micro_batches: int) -> list[list[str]]:
    numbers = range(micro_batches)
    return [[f"{s}{phase}{n}" for phase in "FB" for n in numbers] for s in range(stages)]


def branches(**arguments: Any) -> Schedule:
    return schedules.from_orders(
        "branches",
        all_forward_first(4, 3),
        stages=4,
        micro_batches=3,
        **{"needs": BRANCHES} | arguments,
    )


def test_gradients_come_back_the_way_that_results_went() -> None:
    schedule = branches()
    assert [str(task) for task in schedule.needs(Task.parse("3F1"))] == ["1F1", "2F1"]
    assert [str(task) for task in schedule.needs(Task.parse("2F1"))] == ["0F1"]
    assert [str(task) for task in schedule.needs(Task.parse("0B1"))] == ["0F1", "1B1", "2B1"]
    assert [str(task) for task in schedule.needs(Task.parse("1B1"))] == ["1F1", "3B1"]
    assert simulate(schedule).makespan == simulate(branches(needs=None)).makespan - 2


def test_an_entry_for_gradients_counts() -> None:
    schedule = branches(needs={**BRANCHES, "1B": []})
    assert schedule.needs(Task.parse("1B0")) == (Task.parse("1F0"),)


def test_usual_needs_are_no_table() -> None:
    assert branches(needs={"1F": ["0F"], "2B": ["3B"]}) == branches(needs=None)


@st.composite
def graphs(draw: st.DrawFn) -> Schedule:
    stages, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    base = draw(st.sampled_from([schedules.one_f_one_b, schedules.gpipe, schedules.zero_bubble]))
    needs = {
        f"{stage}F": [f"{other}F" for other in draw(st.sets(st.integers(0, stage - 1), min_size=1))]
        for stage in range(1, stages)
    }
    count = stages * rounds
    return schedules.from_orders(
        "graph",
        add_between(base(stages, count), [""]),
        stages=stages,
        micro_batches=count,
        needs=needs,
    )


@given(graphs(), st.data())
def test_it_is_what_a_slow_checker_says(schedule: Schedule, data: st.DataObject) -> None:
    checker.check(schedule)
    assert schedules.from_text(schedules.to_text(schedule)) == schedule
    row = st.lists(st.integers(0, 9).map(float), min_size=schedule.stages, max_size=schedule.stages)
    seconds: dict[Any, Any] = {phase.value: data.draw(row) for phase in Phase}
    transfer = data.draw(row)[1:]
    run = simulate(schedule, seconds, transfer=transfer)
    assert run.makespan == checker.makespan(schedule, seconds, transfer)


def test_many_micro_batches_are_skipped_exactly() -> None:
    few, many = (
        schedules.from_orders(
            "graph",
            add_between(schedules.one_f_one_b(4, count), [""]),
            stages=4,
            micro_batches=count,
            needs=BRANCHES,
        )
        for count in (100, 5000)
    )
    seconds: dict[Any, Any] = {"F": [1, 3, 2, 1], "B": [2, 1, 5, 2]}
    wanted = checker.makespan(many, seconds, [1.0, 2.0, 0.0])
    assert simulate(many, seconds, transfer=[1, 2, 0]).makespan == wanted
    assert wanted > simulate(few, seconds, transfer=[1, 2, 0]).makespan


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"2F": ["7F"]}, "2F that waits for 7F"),
        ({"7F": ["2F"]}, "needs of 7F with 4 stages"),
        ({"2F": ["0B"]}, "2F that waits for 0B"),
        ({"2F": ["2F"]}, "2F that waits for 2F"),
        ({"2W": ["0F"]}, "'2W' in a table of needs"),
        ({"2F": "0F"}, "'0F' in a table of needs"),
        ({2: ["0F"]}, "2 in a table of needs"),
        ({"2F": None}, "None in a table of needs"),
        ([("2F", ["0F"])], "the argument `needs` is a Mapping"),
    ],
)
def test_tables_that_are_refused(needs: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        branches(needs=needs)


def test_stages_that_wait_for_one_another_are_refused() -> None:
    with pytest.raises(ScheduleError, match="1F0 on IPU 1 waits for 2F0") as caught:
        branches(needs={"1F": ["2F"], "2F": ["1F"]})
    assert ">F0" in caught.value.grid


def test_orders_that_the_table_refuses() -> None:
    orders = ["0F0 0B0".split(), "1F0 1B0 2F0 2B0".split(), "3F0 3B0".split()]
    with pytest.raises(ScheduleError, match="1B0 on IPU 1 waits for 3B0") as caught:
        schedules.from_orders(
            "x", orders, stages=4, micro_batches=1, ipus=[0, 1, 1, 2], needs=BRANCHES
        )
    assert ">1B0" in caught.value.grid


def test_segments_of_own_orders() -> None:
    named = schedules.seq_one_f_one_b(2, 8)
    orders = add_between(named, [""])
    own = schedules.from_orders("own", orders, stages=2, micro_batches=8, segments=2)
    assert own.ticks == named.ticks
    assert own.needs(Task.parse("0F3")) == (Task.parse("0F2"),)
    backward_first = ["0F0 0F1 0B0 0B1".split()]
    with pytest.raises(ScheduleError, match="0B0 on IPU 0 waits for 0B1"):
        schedules.from_orders("x", backward_first, stages=1, micro_batches=2, segments=2)
