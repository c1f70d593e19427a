"""The closed forms of papers against a simulation, task by task."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, formulas, simulate, times_of_tasks
from tests.lowering.schedules.checker import ipus_of

PER_IPU = {name: 2 for name in ("looped_bfs", "interleaved_one_f_one_b", "interleaved_zero_bubble")}
NEEDS_SHORT_WEIGHTS = {"zero_bubble", "zero_bubble_h1", "zero_bubble_h2", "interleaved_zero_bubble"}


def longest_bubble(schedule: Schedule, seconds: dict[Phase, int]) -> int:
    """The most that an IPU idles between its first and its last task."""
    durations = {(p, s): seconds[p] for p in seconds for s in range(schedule.stages)}
    idle: dict[int, tuple[int, int, int]] = {}
    for task, start, end in times_of_tasks(schedule, durations, [0] * (schedule.stages - 1)):
        for ipu in ipus_of(schedule, task.stage, task.micro_batch):
            first, _, work = idle.get(ipu, (start, 0, 0))
            idle[ipu] = first, end, work + end - start
    return max(end - start - work for start, end, work in idle.values())


@pytest.mark.parametrize("name", formulas)
@given(data=st.data())
def test_closed_forms_are_exact(name: str, data: st.DataObject) -> None:
    times = st.integers(1, 9)
    forward, backward, weight = data.draw(times), data.draw(times), data.draw(times)
    if name in NEEDS_SHORT_WEIGHTS:
        assume(weight <= forward)
    if name in ("zero_bubble_h2", "interleaved_zero_bubble"):
        assume(weight <= backward)
    if name == "chimera":
        forward = backward + weight
    ipus, per_ipu = data.draw(st.integers(1, 6)), PER_IPU.get(name, 1)
    any_number = name not in NEEDS_SHORT_WEIGHTS | {"looped_bfs"}
    micro_batches = data.draw(st.integers(1 if any_number else ipus, 20))
    if name == "chimera":
        ipus = 2 * data.draw(st.integers(1, 4))
        micro_batches = ipus * data.draw(st.integers(1, 4))
    try:
        schedule = getattr(schedules, name)(per_ipu * ipus, micro_batches)
    except ScheduleError:
        assume(False)
        raise
    whole = backward if schedule.splits_backward else backward + weight
    seconds = {Phase.FORWARD: forward, Phase.BACKWARD: whole, Phase.WEIGHTS: weight}
    found = formulas[name](
        per_ipu * ipus, micro_batches, forward=forward, backward=backward, weight=weight
    )
    assert found.bubble == longest_bubble(schedule, seconds)
    assert found.memory == max(simulate(schedule).in_flight_per_ipu) / per_ipu


def test_figures_of_the_zero_bubble_paper() -> None:
    """Table 1 of arXiv 2401.10241, with F = 2, B = 3, W = 1."""
    times = {"forward": 2.0, "backward": 3.0, "weight": 1.0}
    found = [
        formulas[name](8, 24, **times)
        for name in ("one_f_one_b", "zero_bubble_h1", "zero_bubble_h2")
    ]
    assert [each.bubble for each in found] == [7 * 6, 7 * 4, 7 * 3]
    assert [each.memory for each in found] == [8, 8, 15]


@pytest.mark.parametrize(
    ("name", "sizes", "seconds", "message"),
    [
        ("gpipe", (0, 4), {}, "0 stages"),
        ("gpipe", (2, 4), {"forward": -1.0}, "forward=-1.0"),
        ("gpipe", (2, 4), {"weight": float("nan")}, "weight=nan"),
        ("gpipe", (2, 4), {"backward": "long"}, "backward='long'"),
        ("looped_bfs", (3, 4), {}, "3 stages, 2 on each IPU"),
    ],
)
def test_numbers_that_have_no_closed_form(
    name: str, sizes: tuple[int, int], seconds: dict[str, float], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        formulas[name](*sizes, **seconds)
