"""A bound on all cuts by paths through the schedule, and good cuts on the way to it.

A path is tasks and transfers that wait for one another; its seconds are a sum over stages, and no
update is faster than any of its paths, nor than a weighted mean of some. Dynamic programming finds
the cut for which such a mean is least: no cut is faster than that. A linear program finds the
weights for which this least is largest, among the paths and cuts that are known; for mixtures of
these cuts, and for new ones, the longest paths are found by following the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from scipy import optimize

from ipujax.planner.alternative import Alternative
from ipujax.planner.stage_graph import StageGraph, sum_path

_CLOSE = 1e-4  # how far the bound may be below what mixtures of cuts reach
_SLOWER = 1.5  # the factor on an IPU's times with which a path through it is sought


class PathBounds:
    """The best bound that is known for the cuts of a graph, and the best of these cuts.

    Args:
      alternative: all choices but the cut.
      graph: the stages that cuts may have.
      paths: paths through the schedule that are known.
      cuts: cuts of the graph that are known.

    Attributes:
      seconds: no cut of the graph is faster; inf if the graph has none.
      mean: float64 [stages, 5]: the weighted mean of paths that says so.
      paths: the paths that are known.
      cuts: the cuts that are known.
      best_cut: the fastest of them that fits in memory, int64 [stages + 1]; None if none does.
      best_seconds: its seconds; inf if there is none.
    """

    def __init__(
        self,
        alternative: Alternative,
        graph: StageGraph,
        paths: Sequence[np.ndarray] = (),
        cuts: Iterable[np.ndarray] = (),
    ):
        self._alternative, self._graph = alternative, graph
        self.seconds, self.mean = -np.inf, np.zeros((alternative.stages, 5))
        self.paths = list(paths)
        self.cuts: list[np.ndarray] = []
        self.best_cut: np.ndarray | None = None
        self.best_seconds = np.inf
        self._rows: list[np.ndarray] = []
        self._known: set[bytes] = set()
        for cut in cuts:
            self.add_cut(cut)

    def add_cut(self, cut: np.ndarray) -> bool:
        """Adds a cut, and the path that is longest with it; returns whether it is new."""
        if cut.tobytes() in self._known:
            return False
        self._known.add(cut.tobytes())
        row = self._alternative.time_rows(cut[None])[0]
        seconds = self._add_longest_path(row)
        self._rows.append(row)
        self.cuts.append(cut)
        if seconds < self.best_seconds and self._alternative.fits_in_memory(cut[None])[0]:
            self.best_cut, self.best_seconds = cut, seconds
        return True

    def add_paths_through_ipus(self, cut: np.ndarray) -> None:
        """Adds for each IPU a path that is longest if its stages are slower than those of a cut."""
        row = self._alternative.time_rows(cut[None])[0]
        mapping = np.array(self._alternative.device_mapping)
        for ipu in range(self._alternative.num_ipus):
            self._add_longest_path(np.where((mapping == ipu)[:, None], _SLOWER * row, row))

    def tighten(self, limit: float, rounds: int, is_out_of_time: Callable[[], bool]) -> None:
        """Looks for a better bound, and better cuts.

        Args:
          limit: a bound of as many seconds will do.
          rounds: how often to try.
          is_out_of_time: whether to stop.
        """
        is_smooth = False
        for _ in range(rounds):
            weights, shares = self._weigh() if self.cuts else (np.ones(len(self.paths)), None)
            mean = np.tensordot(weights / weights.sum(), np.array(self.paths), 1)
            is_new = self._find_least_cut((mean + self.mean) / 2 if is_smooth else mean)
            if self.seconds >= limit or is_out_of_time():
                return
            if shares is not None:
                mixture = np.tensordot(shares, np.array(self._rows[: len(shares)]), 1)
                reached = self._add_longest_path(mixture)
                if reached <= self.seconds * (1 + _CLOSE):
                    return
            is_smooth = is_new and np.isfinite(self.seconds)

    def _find_least_cut(self, mean: np.ndarray) -> bool:
        """Finds the cut for which a mean of paths is least; returns whether it is new."""
        sums = sum_path(self._alternative, mean)
        rest = self._graph.find_rest(sums)
        least = float(rest[0, 0])
        if least > self.seconds:
            self.seconds, self.mean = least, mean
        return bool(np.isfinite(least)) and self.add_cut(self._graph.trace_cut(sums, rest))

    def _add_longest_path(self, row: np.ndarray) -> float:
        """Adds the path that is longest for some times, if it is new; returns its seconds."""
        path = self._alternative.find_longest_path(row)
        if path.tobytes() not in self._known:
            self._known.add(path.tobytes())
            self.paths.append(path)
        return float((path * row).sum())

    def _weigh(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the weights of paths, and the shares of cuts, that balance one another."""
        seconds = np.einsum("psk,csk->pc", np.array(self.paths), np.array(self._rows))
        paths, cuts = seconds.shape
        scale = seconds.max() or 1.0
        solved = cast(
            Any,
            optimize.linprog(
                np.append(np.zeros(cuts), 1.0),
                A_ub=np.hstack([seconds / scale, -np.ones((paths, 1))]),
                b_ub=np.zeros(paths),
                A_eq=np.append(np.ones(cuts), 0.0)[None],
                b_eq=[1.0],
                bounds=[(0, None)] * cuts + [(None, None)],
                method="highs",
            ),
        )
        weights = np.maximum(-solved.ineqlin.marginals, 0.0)
        return weights, np.maximum(solved.x[:-1], 0.0)
