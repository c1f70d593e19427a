"""A mixture of cuts, described by the share of them that has each boundary at each segment.

A mixture is a weighted mean of cuts. What a stage takes is a sum of a number for where it begins
and one for where it ends, so these shares say what a mixture takes, without its cuts. A linear
program finds the shares for which the longest of some paths is shortest, and the weights of the
paths in that.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.stage_graph import StageGraph, sum_path
from ipujax.planner.task_times import COLUMNS

PRICE_OF_MEMORY = 100.0
"""The price of an IPU's memory that is lacking, in makespans, where no mixture of cuts fits."""

_REACH = 1  # segments by which boundaries of known cuts may be moved in a mixture
_QUANTILES = (0.5, 0.2, 0.8)  # of the shares of a boundary, at which cuts of a mixture have theirs


class BalancedMixture(NamedTuple):
    """The mixture of cuts whose longest path is shortest, and the weighted mean of its paths.

    Attributes:
      row: float64 [stages, COLUMNS]: what its stages take.
      seconds: float64 [stages, COLUMNS]: the weighted mean of paths through the schedule.
      excess: float64 [stages, COLUMNS]: the weighted mean of the paths of memory, at its price.
      memory_shortage: the share of an IPU's memory that the mixture lacks.
    """

    row: np.ndarray
    seconds: np.ndarray
    excess: np.ndarray
    memory_shortage: float


class BoundaryShares:
    """The shares of cuts that have each boundary at each segment.

    Args:
      alternative: all choices but the cut.
      graph: the stages that cuts may have.
    """

    def __init__(self, alternative: Alternative, graph: StageGraph):
        self._graph = graph
        stages, positions = graph.possible.shape[:2]
        self._entering, self._leaving = np.zeros((2, stages + 1, positions, COLUMNS))
        for column in range(COLUMNS):
            path = np.zeros((stages, COLUMNS))
            path[:, column] = 1.0
            sums = sum_path(alternative, path)
            self._entering[:-1, :, column] = sums.entering
            self._leaving[1:, :, column] = sums.leaving
        self._earliest, self._latest = _find_reach(graph)
        self._reachable = graph.count_cuts() > 0
        self._considered = np.zeros((stages + 1, positions), bool)
        self._shares = np.zeros((stages + 1, positions))

    def add_cut(self, cut: np.ndarray) -> None:
        """Lets mixtures have boundaries where a cut has them, or near."""
        offsets = np.arange(-_REACH, _REACH + 1)
        positions = np.clip(cut[:, None] + offsets, 0, self._considered.shape[1] - 1)
        self._considered[np.arange(len(cut))[:, None], positions] = True
        self._considered &= self._reachable

    def list_cuts(self) -> list[np.ndarray]:
        """Lists some cuts of the mixture, int64 [stages + 1] each, which have about its shares."""
        sums = self._shares.cumsum(axis=1)
        cuts = [(sums >= quantile).argmax(axis=1) for quantile in _QUANTILES]
        return [cut for cut in cuts if self._graph.has_cut(cut)]

    def balance(
        self, paths: np.ndarray, memory_paths: np.ndarray, scale: float
    ) -> BalancedMixture | None:
        """Finds the mixture whose longest path is shortest; None where the solver finds none.

        Args:
          paths: float64 [paths, stages, COLUMNS]: paths through the schedule.
          memory_paths: the paths of memory, which must not be above 0.
          scale: about the seconds of the longest path.
        """
        from scipy import optimize, sparse  # which JAX requires, and which take long to import

        boundaries, positions = np.nonzero(self._considered)
        all_paths = np.concatenate([paths / scale, memory_paths])
        sums = self._sum_paths(all_paths, boundaries, positions)
        num_shares, num_paths = len(boundaries), len(paths)
        # Beside the shares, the seconds of the longest path and the excess of memory are unknown.
        objectives = np.zeros((len(all_paths), 2))
        objectives[:num_paths, 0] = objectives[num_paths:, 1] = -1.0
        couplings = self._couple(boundaries, positions)
        solution = cast(
            Any,
            optimize.linprog(
                [*[0.0] * num_shares, 1.0, PRICE_OF_MEMORY],
                A_ub=sparse.vstack([sparse.csr_matrix(np.hstack([sums, objectives])), couplings]),
                b_ub=np.zeros(len(all_paths) + couplings.shape[0]),
                A_eq=sparse.csr_matrix(
                    (np.ones(num_shares), (boundaries, np.arange(num_shares))),
                    (len(self._shares), num_shares + 2),
                ),
                b_eq=np.ones(len(self._shares)),
                bounds=[*[(0, None)] * num_shares, (None, None), (0, None)],
                method="highs",
            ),
        )
        if solution.x is None:
            return None
        self._keep_shares(boundaries, positions, solution.x[:num_shares])
        weights = np.maximum(-solution.ineqlin.marginals[: len(all_paths)], 0.0)
        weights /= weights[:num_paths].sum()
        return BalancedMixture(
            row=np.einsum("bp,bpc->bc", self._shares, self._entering)[:-1]
            + np.einsum("bp,bpc->bc", self._shares, self._leaving)[1:],
            seconds=np.tensordot(weights[:num_paths], paths, 1),
            excess=np.tensordot(weights[num_paths:] * scale, memory_paths, 1),
            memory_shortage=float(solution.x[-1]),
        )

    def _keep_shares(self, boundaries: np.ndarray, positions: np.ndarray, solution: Any) -> None:
        """Keeps the shares of a solution, and lets the next mixture have boundaries near them.

        Args:
          boundaries: int64 [shares]: the boundary of each share.
          positions: int64 [shares]: the segment that it lies before.
          solution: float64 [shares]: the share of cuts that have the boundary there.
        """
        self._shares = np.zeros(self._shares.shape)
        self._shares[boundaries, positions] = solution
        has_share = self._shares > 0
        self._considered = has_share.copy()
        for step in range(1, _REACH + 1):
            self._considered[:, step:] |= has_share[:, :-step]
            self._considered[:, :-step] |= has_share[:, step:]
        self._considered &= self._reachable

    def _sum_paths(
        self, paths: np.ndarray, boundaries: np.ndarray, positions: np.ndarray
    ) -> np.ndarray:
        """Returns what a boundary at a position adds to each path, float64 [paths, boundaries]."""
        no_stage = np.zeros((len(paths), 1, COLUMNS))
        stage_before = np.concatenate([no_stage, paths], axis=1)[:, boundaries]
        stage_after = np.concatenate([paths, no_stage], axis=1)[:, boundaries]
        entering = np.einsum("rbc,bc->rb", stage_after, self._entering[boundaries, positions])
        leaving = np.einsum("rbc,bc->rb", stage_before, self._leaving[boundaries, positions])
        return entering + leaving

    def _couple(self, boundaries: np.ndarray, positions: np.ndarray) -> Any:
        """Returns the rows of the constraint that the stages between boundaries are possible.

        Each row times the shares must not be above 0. If a stage that begins at segment b or later
        cannot end before segment e, then the share of cuts in which it ends before e is no larger
        than the share in which it begins before b. For latest ends it is the other way round.
        """
        from scipy import sparse

        first_of_boundary = np.searchsorted(boundaries, np.arange(len(self._shares) + 1))
        rows: list[np.ndarray] = []
        for stage in range(len(self._shares) - 1):
            first, middle, last = first_of_boundary[stage : stage + 3]
            begins, ends = positions[first:middle], positions[middle:last]
            is_before = begins < begins[:, None]
            is_early = ends < self._earliest[stage, begins][:, None]
            is_behind = begins > begins[:, None]
            is_late = ends > self._latest[stage, begins][:, None]
            signs = np.block([[-1.0 * is_before, is_early], [-1.0 * is_behind, is_late]])
            signs = signs[signs.max(axis=1) > 0]
            constraints = np.zeros((len(signs), len(boundaries) + 2))
            constraints[:, first:last] = signs
            rows.append(constraints)
        return sparse.csr_matrix(np.concatenate(rows))


def _find_reach(graph: StageGraph) -> tuple[np.ndarray, np.ndarray]:
    """Finds the earliest end of stages that begin with a segment or later, and the latest end.

    The latest is of stages that begin with it or earlier. int64 [stages, segments + 1] each.
    """
    last = graph.possible.shape[2] - 1
    exists = graph.possible.any(axis=2)
    earliest = np.where(exists, graph.possible.argmax(axis=2), last + 1)
    latest = np.where(exists, last - graph.possible[:, :, ::-1].argmax(axis=2), -1)
    earliest = np.minimum.accumulate(earliest[:, ::-1], axis=1)[:, ::-1]
    return earliest, np.maximum.accumulate(latest, axis=1)
