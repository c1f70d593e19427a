"""Schedules as text and back, and as drawings."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, from_text, grid, to_text

tasks = st.builds(Task, st.integers(0, 99), st.sampled_from(Phase), st.integers(0, 9999))
groups = st.lists(st.integers(0, 63), min_size=1, max_size=4, unique=True).map(tuple)


def names() -> st.SearchStrategy[str]:
    return st.text(min_size=1).filter(
        lambda name: name.isprintable() and name == name.strip() and "#" not in name
    )


@given(
    names(),
    st.lists(groups, min_size=1, max_size=5).map(tuple),
    st.integers(1, 10**6),
    st.booleans(),
    st.lists(st.lists(tasks, max_size=4).map(tuple), max_size=6).map(tuple),
)
def test_any_schedule_survives(
    name: str,
    ipus: tuple[tuple[int, ...], ...],
    micro_batches: int,
    training: bool,
    ticks: tuple[tuple[Task, ...], ...],
) -> None:
    schedule = Schedule(
        name=name,
        stages=len(ipus),
        micro_batches=micro_batches,
        training=training,
        ipus=ipus,
        ticks=ticks,
    )
    assert from_text(to_text(schedule)) == schedule


def test_the_text(golden: Callable[..., None]) -> None:
    golden(to_text(schedules.zero_bubble(3, 4, ipus=[0, (1, 2), 3])), "zero-bubble")
    golden(to_text(schedules.grouped(2, 4, training=True)), "grouped")


def test_comments_and_blank_lines_do_not_count() -> None:
    schedule = from_text(
        """
        # what we tried on Monday
        schedule mine: stages=2 micro_batches=1 training=no ipus=0/1  # no `ticks=`

        0F0   # first
        -
        1F0
        """
    )
    assert schedule.name == "mine"
    assert schedule.ticks == ((Task(0, Phase.FORWARD, 0),), (), (Task(1, Phase.FORWARD, 0),))


HEADER = "schedule mine: stages=2 micro_batches=1 training=no ipus=0/1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty text"),
        ("# nothing\n", "an empty text"),
        ("0F0\n", "begins with '0F0'\n  where: line 1 of the text"),
        ("\nschedule mine\n", "begins with 'schedule mine'\n  where: line 2 of the text"),
        (f"{HEADER} ticks=3\n0F0\n1F0\n", "2 ticks in a text that announces 3\n  where: line 3"),
        (f"{HEADER}\n0F0\n1G0\n", "'1G0' is no task\n  where: line 3 of the text"),
        (f"{HEADER}\n0F0 - 1F0\n", "'-' is no task\n  where: line 2 of the text"),
        (f"{HEADER}\n0F\n", "'0F' is no task\n  where: line 2 of the text"),
        (HEADER.replace("stages=2", "stages=0"), "0 stages\n  where: line 1 of the text"),
        (HEADER.replace("0/1", "0"), "1 entries of `ipus` for 2 stages\n  where: line 1"),
        (HEADER.replace("0/1", "0/1,1"), "stage 1 on the IPUs (1, 1)\n  where: line 1"),
    ],
)
def test_texts_that_are_not_understood(text: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        from_text(text)
    assert words in str(caught.value)


def test_the_source_is_named() -> None:
    with pytest.raises(ScheduleError, match="where: mine:2"):
        from_text(f"{HEADER}\n0G0\n", source="mine")


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a#b"])
def test_names_that_no_text_could_hold(name: str) -> None:
    with pytest.raises(ScheduleError, match="as the name of a schedule"):
        Schedule(name=name, stages=1, micro_batches=1, training=False, ipus=((0,),), ticks=())


def test_ipus_are_tuples() -> None:
    with pytest.raises(ScheduleError, match="give a tuple of IPUs for every stage"):
        Schedule(name="a", stages=1, micro_batches=1, training=False, ipus=[0], ticks=())


@pytest.mark.parametrize("label", ["", "F", "0F", "F0", "0X0", "0F0 ", "-1F0", "0f0", "0F0.5"])
def test_labels_that_are_no_task(label: str) -> None:
    with pytest.raises(ScheduleError, match="is no task"):
        Task.parse(label)


@given(tasks)
def test_labels_survive(task: Task) -> None:
    assert Task.parse(str(task)) == task


def test_a_part_can_be_drawn(golden: Callable[..., None]) -> None:
    schedule = schedules.interleaved_one_f_one_b(8, 64, ipus=[0, 1, 2, 3] * 2)
    golden(grid(schedule, 60, 72), "middle")
    golden(grid(schedule, 250), "end")
    assert grid(schedule, 3, 3) == "tick\n" + "\n".join(f"IPU {i}" for i in range(4))


@pytest.mark.exhaustive
@given(st.integers(0, 300), st.integers(0, 300))
def test_drawings_fit_the_page(first: int, length: int) -> None:
    drawn = grid(schedules.one_f_one_b(30, 100), first, first + length)
    assert all(len(line) <= 100 for line in drawn.splitlines())
    assert len(drawn.splitlines()) <= 25


def test_the_public_descriptions() -> None:
    schedule = schedules.sequential(2, 3, training=False)
    assert repr(schedule) == (
        "<Schedule sequential: 2 stages, 3 micro-batches, inference, 6 ticks>"
    )
    assert str(schedule).startswith("sequential: 2 stages")
    assert (schedule.num_tasks, schedule.splits_backward) == (6, False)
    assert schedule == schedules.sequential(2, 3, training=False)
    assert hash(schedule) == hash(schedules.sequential(2, 3, training=False))
