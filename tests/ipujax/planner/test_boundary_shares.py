"""Mixtures of cuts by the shares of their boundaries are those of the cuts themselves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from ipujax.planner import Costs
from ipujax.planner.alternative import Alternative, list_alternatives
from ipujax.planner.boundary_shares import BoundaryShares
from ipujax.planner.bounds import StageTables
from ipujax.planner.path_bounds import PathBounds
from ipujax.planner.search_arguments import read_search_arguments
from ipujax.planner.stage_graph import StageGraph


def alternative_of(
    costs: Costs, schedule: str, stages: int, ipus: int, memory: float
) -> Alternative:
    arguments = read_search_arguments(
        ipus=ipus,
        micro_batches=8,
        schedules=[schedule],
        recompute=False,
        offload=False,
        replicas=1,
        memory=memory,
        budget_seconds=60.0,
    )
    known = [one for one in list_alternatives(costs, arguments) if one.stages == stages]
    return next(one for one in known if one.num_ipus == ipus)


def random_costs(seed: int, segments: int) -> Costs:
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 10, (5, segments)).tolist()
    return Costs(
        *rows[:2], parameter_bytes=rows[2], activation_bytes=rows[3], cut_bytes=rows[4][1:]
    )


def list_all_cuts(alternative: Alternative, graph: StageGraph) -> np.ndarray:
    segments = len(alternative.stage_costs.costs)
    inner = itertools.combinations(range(1, segments), alternative.stages - 1)
    cuts = [np.array([0, *points, segments]) for points in inner]
    return np.array([cut for cut in cuts if graph.has_cut(cut)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("schedule", "stages", "ipus"), [("one_f_one_b", 4, 4), ("interleaved_one_f_one_b", 4, 2)]
)
def test_mixture_is_the_best_of_all_mixtures_of_cuts(
    seed: int, schedule: str, stages: int, ipus: int
):
    costs = random_costs(seed, 9)
    alternative = alternative_of(costs, schedule, stages, ipus, memory=75.0)
    graph = StageGraph(StageTables(alternative).possible)
    cuts = list_all_cuts(alternative, graph)
    rows = alternative.time_rows(cuts)
    paths = np.array(
        [*alternative.list_straight_paths(), *map(alternative.find_longest_path, rows[::5])]
    )
    shares = BoundaryShares(alternative, graph)
    for cut in cuts:
        shares.add_cut(cut)
    mixture = shares.balance(paths, paths[:0], scale=3.0)
    assert mixture is not None
    seconds = np.einsum("psc,rsc->pr", paths, rows)
    game = optimize.linprog(
        [*[0.0] * len(cuts), 1.0],
        A_ub=np.hstack([seconds, -np.ones((len(paths), 1))]),
        b_ub=np.zeros(len(paths)),
        A_eq=[[*[1.0] * len(cuts), 0.0]],
        b_eq=[1.0],
        bounds=[*[(0, None)] * len(cuts), (None, None)],
    )
    assert (paths * mixture.row).sum(axis=(1, 2)).max() == pytest.approx(game.fun)
    assert np.einsum("sc,rsc->r", mixture.seconds, rows).min() == pytest.approx(game.fun)
    assert all(graph.has_cut(cut) for cut in shares.list_cuts())


@pytest.mark.parametrize("seed", range(8))
def test_what_no_cut_has_memory_for_is_found_without_trying_cuts(seed: int):
    costs = random_costs(seed, 10)
    everywhere = alternative_of(costs, "interleaved_one_f_one_b", 6, 2, memory=1e9)
    cuts = list_all_cuts(everywhere, StageGraph(StageTables(everywhere).possible))
    least = float(everywhere.peak_bytes(cuts).max(axis=1).min())
    for memory, fits in ((0.8 * least, False), (1.001 * least, True)):
        alternative = alternative_of(costs, "interleaved_one_f_one_b", 6, 2, memory)
        tables = StageTables(alternative)
        cut = tables.find_balanced_cut()
        assert cut is not None
        bounds = PathBounds(alternative)
        bounds.start_with(cut)
        bounds.balance_boundaries(StageGraph(tables.possible), math.inf, 20, lambda: False)
        assert math.isinf(bounds.seconds) != fits
