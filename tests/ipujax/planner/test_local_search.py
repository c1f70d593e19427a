"""Moves of segments lead to the best cut, from any other."""

from __future__ import annotations

import dataclasses as dc
import itertools

import numpy as np
import pytest

from ipujax.planner import Costs
from ipujax.planner.alternative import Alternative, TimedSchedule
from ipujax.planner.local_search import LocalSearch
from ipujax.planner.stage_costs import StageCosts
from lowering import schedules

COSTS = Costs(
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
    [2, 7, 1, 8, 2, 8, 1, 8, 2, 8],
    [1, 4, 1, 4, 2, 1, 3, 5, 6, 2],
    parameter_bytes=[5, 1, 3, 2, 4, 1, 2, 2, 6, 1],
    activation_bytes=[1, 7, 3, 2, 5, 1, 4, 2, 3, 6],
)


def alternative(
    memory: float,
    costs: Costs = COSTS,
    kind: str = "zbv",
    device_mapping: tuple[int, ...] = (0, 1, 1, 0),
) -> Alternative:
    """Stages 0 and 3, and 1 and 2, on an IPU, where nothing else is said."""
    registered = schedules.find_registered_schedule(kind)
    return Alternative(
        timed=TimedSchedule(registered, device_mapping, 6),
        stage_costs=StageCosts(costs, recompute=False, splits_backward=registered.splits_backward),
        offload=False,
        replicas=1,
        memory=np.full(2, memory),
    )


@pytest.mark.parametrize("memory", [np.inf, 60.0, 55.0])
def test_the_best_cut_that_fits_is_found(memory: float) -> None:
    choice = alternative(memory)
    inner = itertools.combinations(range(1, len(COSTS)), 3)
    cuts = np.array([(0, *points, len(COSTS)) for points in inner])
    fitting = cuts[choice.fits_in_memory(cuts)]
    assert 0 < len(fitting) < len(cuts) or memory == np.inf
    starts = np.array([[0, 1, 2, 3, len(COSTS)]])
    search = LocalSearch(choice, starts, np.array(choice.list_straight_paths()))
    steps = iter(range(60))
    search.improve(lambda: next(steps, None) is None)
    assert search.best is not None
    assert choice.fits_in_memory(search.best[None])[0]
    assert search.seconds == choice.seconds(search.best[None])[0]
    assert search.seconds == choice.seconds(fitting).min()


def test_what_no_cut_fits_in_has_no_best_cut() -> None:
    choice, starts = alternative(10.0), np.array([[0, 1, 2, 3, len(COSTS)]])
    search = LocalSearch(choice, starts, np.array(choice.list_straight_paths()))
    steps = iter(range(5))
    search.improve(lambda: next(steps, None) is None)
    assert search.best is None
    assert search.seconds == np.inf


def test_more_ipus_than_paths_are_kept() -> None:
    """The path through each IPU stays, however many there are."""
    count = 100
    mapping, ones = tuple(range(count)), [1.0] * (count + 1)
    choice = dc.replace(
        alternative(np.inf),
        timed=TimedSchedule(schedules.find_registered_schedule("grouped"), mapping, 2 * count),
        stage_costs=StageCosts(Costs(ones, ones), recompute=False, splits_backward=False),
        memory=np.full(count, np.inf),
    )
    starts = np.array([[*mapping, len(ones)]])
    search = LocalSearch(choice, starts, np.array(choice.list_straight_paths()))
    steps = iter(range(1))
    search.improve(lambda: next(steps, None) is None)
    assert search.best is not None
