"""The search for the shortest schedule, against known optima and every way to run a few tasks."""

from __future__ import annotations

import itertools
import sys

import pytest

from ipujax import schedules
from ipujax.errors import MissingExtraError
from ipujax.pipelines.schedule_solver import TaskProblem
from ipujax.schedules import Phase, ScheduleError, simulate
from tests.lowering.schedules.checker import check


@pytest.fixture
def ortools() -> None:
    pytest.importorskip("ortools")


def shortest(ipus: list[int], micro_batches: int, memory: int) -> int:
    """The fewest ticks in unit times: every choice of every IPU, tick by tick."""
    stages, done = len(ipus), tuple([0] * len(ipus) * 3)  # F, B and W of each stage
    own = [[s for s in range(stages) if ipus[s] == ipu] for ipu in sorted(set(ipus))]

    def choices(state: tuple[int, ...], stages_of_ipu: list[int]) -> list[int | None]:
        held = sum(state[s] - state[2 * stages + s] for s in stages_of_ipu)
        found: list[int | None] = [None]
        for s in stages_of_ipu:
            f, b, w = state[s], state[stages + s], state[2 * stages + s]
            if f < (state[s - 1] if s else micro_batches) and held < memory:
                found.append(s)
            if b < (state[stages + s + 1] if s < stages - 1 else f) and b < f:
                found.append(stages + s)
            if w < b:
                found.append(2 * stages + s)
        return found

    reached, ticks = {done}, 0
    while tuple([micro_batches] * 3 * stages) not in reached:
        ticks += 1
        later: set[tuple[int, ...]] = set()
        for state in reached:
            for picked in itertools.product(*(choices(state, stages_) for stages_ in own)):
                counts = list(state)
                for task in picked:
                    if task is not None:
                        counts[task] += 1
                later.add(tuple(counts))
        reached = later
    return ticks


@pytest.mark.usefixtures("ortools")
@pytest.mark.parametrize(
    ("stages", "micro_batches", "memory", "placement"),
    [
        (1, 3, 1, "straight"),
        (2, 3, 1, "straight"),
        (2, 4, 2, "straight"),
        (3, 3, 2, "straight"),
        (2, 3, 1, "v"),
        (4, 2, 1, "v"),
        (4, 2, 2, "v"),
    ],
)
def test_it_finds_the_shortest(
    stages: int, micro_batches: int, memory: int, placement: str
) -> None:
    found = schedules.search(stages, micro_batches, memory=memory, placement=placement)
    ipus = [min(s, stages - 1 - s) if placement == "v" else s for s in range(stages)]
    per_ipu = 2 if placement == "v" else 1
    assert found.proven
    assert found.makespan == found.lower_bound == shortest(ipus, micro_batches, memory * per_ipu)
    run = simulate(found.schedule)
    assert run.makespan == found.makespan
    assert max(run.in_flight_per_ipu) <= memory * per_ipu
    assert found.schedule.ipus == tuple((ipu,) for ipu in ipus)


@pytest.mark.usefixtures("ortools")
@pytest.mark.parametrize(
    ("stages", "micro_batches", "memory", "placement", "makespan"),
    [
        (4, 8, 4, "straight", 27),
        (4, 16, 4, "straight", 51),
        (8, 8, 4, "v", 51),
        pytest.param(8, 8, 3, "v", 53, marks=pytest.mark.exhaustive),
        pytest.param(8, 8, 2, "v", 59, marks=pytest.mark.exhaustive),
    ],
)
def test_published_optima(
    stages: int, micro_batches: int, memory: int, placement: str, makespan: int
) -> None:
    found = schedules.search(
        stages, micro_batches, memory=memory, placement=placement, budget_seconds=200
    )
    assert (found.makespan, found.lower_bound, found.proven) == (makespan, makespan, True)
    per_ipu = 2 if placement == "v" else 1
    assert max(simulate(found.schedule).in_flight_per_ipu) <= memory * per_ipu


@pytest.mark.usefixtures("ortools")
def test_seconds_of_tasks_and_transfers() -> None:
    seconds = {"F": 0.3, "B": 0.5, "W": 0.1}
    found = schedules.search(3, 5, forward=0.3, backward=0.5, weight=0.1, transfer=0.2)
    # Two forward tasks on the way to the last IPU, all its tasks but the gradients of weights, two
    # backward tasks on the way back, and one gradient of weights.
    assert found.makespan == pytest.approx(2 * (0.3 + 0.2) + 5 * 0.8 + 2 * (0.2 + 0.5) + 0.1)
    assert found.proven
    assert found.makespan <= simulate(schedules.zero_bubble(3, 5), seconds, transfer=0.2).makespan
    assert found.makespan == simulate(found.schedule, seconds, transfer=0.2).makespan


@pytest.mark.usefixtures("ortools")
def test_without_gradients_of_weights_the_backward_pass_is_whole() -> None:
    found = schedules.search(3, 6, backward=2.0, weight=0.0, memory=3)
    assert not found.schedule.splits_backward
    assert (found.makespan, found.proven) == (3 * (6 + 3 - 1), True)


@pytest.mark.usefixtures("ortools")
def test_many_micro_batches_repeat_a_round() -> None:
    found = schedules.search(2, 1000, memory=1, budget_seconds=20)
    # A micro-batch has left an IPU before the next one comes: with one on each of them, IPU 0
    # waits until IPU 1 has run its forward and backward task.
    assert found.makespan == shortest([0, 1], 4, 1) + 996 * 5
    assert found.proven  # an IPU 0 that holds one micro-batch at a time cannot be faster
    assert simulate(found.schedule).in_flight_per_ipu == (1, 1)
    assert sum(len(run.ticks) for run in found.schedule.ticks.runs) < 200


@pytest.mark.usefixtures("ortools")
@pytest.mark.parametrize(
    ("stages", "micro_batches", "memory", "placement", "weight"),
    [(12, 30, 5, "straight", 1.0), (8, 9, 1, "v", 1.0), (6, 40, 2, "straight", 0.0)],
)
def test_in_no_time_there_is_a_schedule_all_the_same(
    stages: int, micro_batches: int, memory: int, placement: str, weight: float
) -> None:
    found = schedules.search(
        stages,
        micro_batches,
        memory=memory,
        placement=placement,
        weight=weight,
        budget_seconds=0.01,
    )
    check(found.schedule)
    per_ipu = 2 if placement == "v" else 1
    assert max(simulate(found.schedule).in_flight_per_ipu) <= memory * per_ipu
    assert found.lower_bound <= found.makespan


@pytest.mark.parametrize("memory", [1, 2, 3])
@pytest.mark.parametrize("placement", ["straight", "v"])
def test_bounds_are_below_the_shortest(memory: int, placement: str) -> None:
    stages = 4 if placement == "v" else 3
    ipus = [min(s, stages - 1 - s) if placement == "v" else s for s in range(stages)]
    units = dict.fromkeys((Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHTS), 1)
    limit = memory * (stages // len(set(ipus)))
    for count in (1, 2, 3):
        problem = TaskProblem(
            ipus=ipus, micro_batches=count, durations=units, transfer=0, memory=limit
        )
        assert problem.lower_bound() <= shortest(ipus, count, limit)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ortools")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ipujax\[plan\]'"):
        schedules.search(2, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stages": 0}, "stages"),
        ({"micro_batches": 2.5}, "micro_batches"),
        ({"forward": 0}, "forward is 0"),
        ({"backward": -1}, "backward is -1"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"transfer": float("inf")}, "transfer is inf"),
        ({"transfer": [1]}, "transfer"),
        ({"memory": 0.5}, "memory is 0.5"),
        ({"placement": "w"}, "placement"),
        ({"stages": 3, "placement": "v"}, "even number"),
        ({"budget_seconds": 0}, "budget_seconds"),
        ({"forward": 1 / 3, "backward": 1 / 7}, "too many digits"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        schedules.search(**{"stages": 2, "micro_batches": 2, **arguments})
