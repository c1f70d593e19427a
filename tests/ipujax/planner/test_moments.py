"""What an IPU needs is the most that it has at once; a path through it is never too long."""

from __future__ import annotations

import dataclasses as dc

import numpy as np
import pytest

from ipujax.planner import Costs, search
from ipujax.planner.alternative import Alternative, TimedSchedule
from ipujax.planner.stage_costs import StageCosts
from ipujax.planner.task_times import CONSTANT
from lowering import schedules

NAMES = ("grouped", "interleaved_one_f_one_b", "looped_bfs", "interleaved_zero_bubble")
FOLDED = ("zbv", "v_half", "v_min", "dualpipe_v")
IPUS = 3
SEGMENTS = 20


def build_alternative(name: str, costs: Costs, **choices: bool) -> Alternative:
    registered = schedules.find_registered_schedule(name)
    mapping = (0, 1, 2, 2, 1, 0) if name in FOLDED else (0, 1, 2) * 3
    if name == "grouped":
        mapping = (0, 1, 0, 2, 1)
    return Alternative(
        timed=TimedSchedule(registered, mapping, 60),
        stage_costs=StageCosts(costs, choices.get("recompute", False), registered.splits_backward),
        offload=False,
        replicas=1,
        memory=np.full(IPUS, np.inf),
    )


def random_costs(numbers: np.random.Generator) -> Costs:
    def row() -> np.ndarray:
        return numbers.integers(0, 9, SEGMENTS)

    return Costs(row(), row(), row(), row(), row(), row(), latency=0.5)


def random_cuts(numbers: np.random.Generator, stages: int) -> np.ndarray:
    inner = [numbers.choice(np.arange(1, SEGMENTS), stages - 1, replace=False) for _ in range(20)]
    return np.array([[0, *sorted(points), SEGMENTS] for points in inner])


@pytest.mark.parametrize("name", [*NAMES, *FOLDED])
def test_an_ipu_needs_what_a_simulation_keeps_at_most(name: str) -> None:
    numbers = np.random.default_rng(3)
    choice = build_alternative(name, random_costs(numbers))
    assert choice.timed.schedule is not None
    for cut in random_cuts(numbers, choice.stages):
        costs, (starts, ends) = choice.stage_costs, (cut[:-1], cut[1:])
        run = schedules.simulate(
            choice.timed.schedule, sizes=costs.activation_bytes(starts, ends).tolist()
        )
        needed = choice.peak_bytes(cut[None])[0]
        for ipu, over_time in enumerate(run.bytes):
            own = np.array(choice.device_mapping) == ipu
            parameters = costs.parameter_bytes(starts, ends)[own].sum()
            assert needed[ipu] == parameters + max(held for _, held in over_time)


def test_what_is_computed_again_is_there_while_its_stage_works() -> None:
    # Each IPU has two stages of one segment, which keep 2 bytes that enter, and compute 10 or 30.
    costs = Costs([1] * 4, [1] * 4, activation_bytes=[10, 30, 30, 10], cut_bytes=[2] * 3)
    plan = search(
        costs,
        ipus=2,
        micro_batches=2,
        schedules="looped_bfs",
        recompute=True,
        consider=[
            {
                "stages": [1, 2, 3],
                "schedule": "looped_bfs",
                "device_mapping": [0, 1, 0, 1],
                "recompute": True,
            }
        ],
    )
    (row,) = [row for row in plan.considered if row.why.startswith("given: ")]
    # IPU 1 has two micro-batches in stages 1 and 3 each, and works in stage 1 when both wait there
    # alone: its last stage has done with them. IPU 0 keeps nothing of what enters the model.
    assert row.fullest_bytes == 2 * 2 + 30


@pytest.mark.parametrize("name", [*NAMES, *FOLDED, "one_f_one_b", "zero_bubble", "gpipe"])
def test_no_straight_path_is_longer_than_the_schedule(name: str) -> None:
    numbers = np.random.default_rng(4)
    costs = random_costs(numbers)
    choice = build_alternative(name, costs)
    if name in ("one_f_one_b", "zero_bubble", "gpipe"):
        timed = TimedSchedule(choice.timed.registered, (0, 1, 2), 7)
        choice = dc.replace(choice, timed=timed)
    cuts = random_cuts(numbers, choice.stages)
    seconds = choice.seconds(cuts)
    paths = choice.list_straight_paths()
    assert len(paths) == IPUS
    for path in paths:
        assert not path[:, CONSTANT].any()
        lengths = (path * choice.time_rows(cuts)).sum(axis=(1, 2))
        assert (lengths <= seconds * (1 + 1e-12)).all()


def test_a_straight_path_fills_and_drains_the_pipeline() -> None:
    choice = build_alternative("one_f_one_b", Costs([1] * 6, [2] * 6))
    timed = TimedSchedule(choice.timed.registered, (0, 1, 2), 7)
    choice = dc.replace(choice, timed=timed)
    row = choice.time_rows(np.array([[0, 2, 4, 6]]))[0]
    lengths = [(path * row).sum() for path in choice.list_straight_paths()]
    assert lengths == [7 * 6, (7 + 1) * 6, (7 + 2) * 6]
