"""Mixtures of cuts by the shares of their boundaries are those of the cuts themselves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from ipujax.planner.boundary_shares import BoundaryShares
from ipujax.planner.candidate import Candidate
from ipujax.planner.stage_graph import StageGraph
from ipujax.planning import Costs
from tests.ipujax.planner.test_local_search import COSTS, alternative

SEGMENTS = len(COSTS)
CUTS = np.array(
    [(0, *points, SEGMENTS) for points in itertools.combinations(range(1, SEGMENTS), 3)]
)


def draw_graph(seed: int) -> tuple[StageGraph, np.ndarray]:
    """Stages of up to some segments, each another number, and the cuts that have no others."""
    longest = np.random.default_rng(seed).integers(3, 6, 4)
    positions = np.arange(SEGMENTS + 1)
    lengths = positions - positions[:, None]
    graph = StageGraph((lengths > 0) & (lengths <= longest[:, None, None]))
    return graph, np.array([cut for cut in CUTS if graph.has_cut(cut)])


@pytest.mark.parametrize("seed", range(8))
def test_mixture_is_the_best_of_all_mixtures_of_cuts(seed: int) -> None:
    choice = alternative(math.inf)
    graph, cuts = draw_graph(seed)
    assert 5 < len(cuts) < len(CUTS)
    rows = choice.time_rows(cuts)
    paths = [*choice.list_straight_paths(), *map(choice.find_longest_path, rows[::5])]
    shares = BoundaryShares(choice, graph)
    for cut in cuts:
        shares.add_cut(cut)
    mixture = shares.balance(np.array(paths), np.zeros((0, *paths[0].shape)), scale=3.0)
    assert mixture is not None
    seconds = np.einsum("psc,rsc->pr", paths, rows)
    best = optimize.linprog(
        [*[0.0] * len(cuts), 1.0],
        A_ub=np.hstack([seconds, -np.ones((len(paths), 1))]),
        b_ub=np.zeros(len(paths)),
        A_eq=[[*[1.0] * len(cuts), 0.0]],
        b_eq=[1.0],
        bounds=[*[(0, None)] * len(cuts), (None, None)],
    ).fun
    assert (paths * mixture.row).sum(axis=(1, 2)).max() == pytest.approx(best)
    assert np.einsum("sc,rsc->r", mixture.seconds, rows).min() == pytest.approx(best)
    assert all(graph.has_cut(cut) for cut in shares.list_cuts())


@pytest.mark.parametrize("share", [0.7, 0.88, 1.0, 1.05, 1.2])
def test_what_no_cut_has_memory_for_is_passed_over(share: float) -> None:
    """Some cut fits in what the one that needs least has; in an eighth less, no mixture does."""
    least = float(alternative(math.inf).peak_bytes(CUTS).max(axis=1).min())
    candidate = Candidate(alternative(share * least))
    candidate.find_rough_cut(math.inf, lambda: False)
    assert math.isinf(candidate.lower_bound) == (share < 0.9)


@pytest.mark.parametrize("memory", [5.0, 6.0])
def test_copies_of_tied_parameters_need_memory(memory: float) -> None:
    """Four segments have 8 bytes of parameters, and one a copy of 3: 5.5 bytes for each IPU."""
    tied = [(0, 3, 3.0)]
    costs = Costs([1] * 4, [1] * 4, parameter_bytes=[4, 1, 1, 2], tied_bytes=tied)
    choice = alternative(memory, costs, "interleaved_one_f_one_b", (0, 1, 0, 1))
    candidate = Candidate(choice)
    candidate.find_rough_cut(math.inf, lambda: False)
    assert math.isinf(candidate.lower_bound) == (memory < 5.5)
