"""The closed forms of papers against a simulation, task by task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, formulas, simulate, times_of_tasks
from tests.lowering.schedules.checker import ipus_of

ABOUT = ("zbv", "v_half", "v_min")  # what their paper says of many IPUs
DEALT_OUT = ("looped_bfs", "interleaved_one_f_one_b", "interleaved_zero_bubble")
PER_IPU = {name: 2 for name in (*DEALT_OUT, *ABOUT, "dualpipe_v")}
ZERO_BUBBLE = ("zero_bubble", "zero_bubble_h1", "zero_bubble_h2", "interleaved_zero_bubble")
SET_OF = {  # what the number of micro-batches is a multiple of, by the number of IPUs
    "grouped": lambda ipus: 2 * ipus,
    "interleaved": lambda ipus: ipus,
    "interleaved_one_f_one_b": lambda ipus: ipus,
    "interleaved_zero_bubble": lambda ipus: ipus,
    "seq_one_f_one_b": lambda _: 2,
    "chimera": lambda ipus: ipus,
    "dualpipe": lambda _: 2,
}
FEWEST = {  # micro-batches for which a form holds, by the number of IPUs
    **dict.fromkeys((*ZERO_BUBBLE, "looped_bfs"), lambda ipus: ipus),
    **dict.fromkeys(("dualpipe", "dualpipe_v"), lambda ipus: 2 * ipus),
}


def longest_bubble(schedule: Schedule, seconds: dict[Phase, int]) -> int:
    """The most that an IPU idles between its first and its last task."""
    durations = {(p, s): seconds[p] for p in seconds for s in range(schedule.stages)}
    idle: dict[int, tuple[int, int, int]] = {}
    for task, start, end in times_of_tasks(schedule, durations, [0] * (schedule.stages - 1)):
        for ipu in ipus_of(schedule, task.stage, task.micro_batch):
            first, _, work = idle.get(ipu, (start, 0, 0))
            idle[ipu] = first, end, work + end - start
    return max(end - start - work for start, end, work in idle.values())


@pytest.mark.parametrize("name", [name for name in formulas if name not in ABOUT])
@given(data=st.data())
def test_closed_forms_are_exact(name: str, data: st.DataObject) -> None:
    forward, backward = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    if name in ("dualpipe", "dualpipe_v"):
        backward = forward
    longest = 9
    if name in (*ZERO_BUBBLE, "dualpipe", "dualpipe_v"):
        longest = forward
    if name in ("zero_bubble_h2", "interleaved_zero_bubble"):
        longest = min(forward, backward)
    weight = data.draw(st.integers(1, longest))
    if name == "chimera":
        forward = backward + weight
    ipus, per_ipu = data.draw(st.integers(1, 6)), PER_IPU.get(name, 1)
    if name in ("chimera", "dualpipe"):
        ipus += ipus % 2
    set_size = SET_OF[name](ipus) if name in SET_OF else 1
    fewest = FEWEST[name](ipus) if name in FEWEST else 1
    micro_batches = set_size * data.draw(st.integers(-(-fewest // set_size), 24))
    schedule = getattr(schedules, name)(per_ipu * ipus, micro_batches)
    whole = backward if schedule.splits_backward else backward + weight
    seconds = {Phase.FORWARD: forward, Phase.BACKWARD: whole, Phase.WEIGHTS: weight}
    found = formulas[name](
        per_ipu * ipus, micro_batches, forward=forward, backward=backward, weight=weight
    )
    assert found.exact
    assert found.bubble == longest_bubble(schedule, seconds)
    assert found.memory == max(simulate(schedule).in_flight_per_ipu) / per_ipu


@pytest.mark.parametrize("name", ABOUT)
@pytest.mark.parametrize("ipus", [2, 4, 7, 12])
def test_closed_forms_of_the_paper_are_near(name: str, ipus: int) -> None:
    """Memory is exact; an IPU idles less than the paper's share, and for V-ZB a tick an IPU."""
    schedule = getattr(schedules, name)(2 * ipus, 3 * ipus)
    found = formulas[name](2 * ipus, 3 * ipus)
    bubble = longest_bubble(
        schedule, dict.fromkeys((Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHTS), 1)
    )
    assert not found.exact
    assert found.memory == max(simulate(schedule).in_flight_per_ipu) / 2
    assert 0 < bubble <= (ipus + 1 if name == "zbv" else found.bubble)


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (4, 16), (6, 24), (8, 40)])
def test_dualpipe_idles_as_deepseeks_order_with_uneven_times(
    stages: int, micro_batches: int
) -> None:
    """The makespans of their program's orders, where F, B and W take 3, 4 and 2."""
    schedule = schedules.dualpipe(stages, micro_batches)
    times = {Phase.FORWARD: 3, Phase.BACKWARD: 4, Phase.WEIGHTS: 2}
    assert simulate(schedule, times).makespan == 9 * micro_batches + 5 * (stages // 2 - 1)


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


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_one_stage_never_idles(name: str, micro_batches: int) -> None:
    found = formulas[name](1, micro_batches)
    assert found.bubble == 0
    assert found.memory == simulate(getattr(schedules, name)(1, micro_batches)).in_flight[0]
