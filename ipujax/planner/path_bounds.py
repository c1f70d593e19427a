"""A bound on all cuts by paths through the schedule, and good cuts on the way to it.

A path is tasks and transfers that wait for one another; its seconds are a sum over stages, and no
update is faster than any of its paths, nor than a weighted mean of some. Dynamic programming finds
the cut for which such a mean is least: no cut is faster than that. A linear program finds the
weights for which this least is largest, among the paths and cuts that are known, and the mixture of
cuts (a weighted mean of them) whose longest path is shortest. New paths are the longest ones of
such mixtures and of new cuts; following the schedule finds them. Limits of memory are paths too,
which must not be above 0: what is above has a price in seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from ipujax.planner.alternative import EXCESS, Alternative
from ipujax.planner.boundary_shares import PRICE_OF_MEMORY, BalancedMixture, BoundaryShares
from ipujax.planner.stage_graph import PathTable, StageGraph, sum_path
from ipujax.planner.task_times import CONSTANT

_CLOSE = 1e-4  # the share by which a bound may stay below what mixtures of cuts reach
_HOPELESS = 0.3  # of the way from a bound to the limit: mixtures no farther off rule the limit out
_LEAST_RISE = 0.01  # the share by which a bound should rise in a round
_MOST_STALLS = 2  # rounds in a row that raise a bound by less, where memory is still in the way
_MOST_MEANS = 8  # the best means of paths, which rule out stages
_MOST_PATHS = 40  # the longest paths, with which a part of the cuts begins


class _Mean(NamedTuple):
    """A weighted mean of paths, in which bytes that IPUs have too many count as seconds.

    Attributes:
      lower_bound: the seconds of the mean for the cut for which it is least.
      path: float64 [stages, COLUMNS]: the mean.
    """

    lower_bound: float
    path: np.ndarray


class PathBounds:
    """The best bound that is known for some cuts, with the cuts and paths that prove it.

    Args:
      alternative: all choices but the cut.
      lower_bound: a bound in seconds that is known.

    Attributes:
      lower_bound: the seconds that no cut is faster than; inf if no cut fits in memory.
      cuts: the cuts that are known, each int64 [stages + 1].
      paths: the paths that are known, those through each IPU first.
      cut_shares: the shares of the first of `cuts` in the mixture whose longest path is shortest.
    """

    def __init__(self, alternative: Alternative, lower_bound: float = -np.inf):
        self._alternative = alternative
        self.lower_bound = lower_bound
        self.cuts: list[np.ndarray] = []
        self.paths: list[np.ndarray] = []
        self.cut_shares = np.zeros(0)
        self._means: list[_Mean] = []
        self._rows: list[np.ndarray] = []
        self._added_keys: set[bytes] = set()
        self._fullest_moments: dict[tuple[int, int], np.ndarray] = {}

    def start_with(self, cut: np.ndarray) -> None:
        """Adds a path through each IPU, and a first cut."""
        for path in self._alternative.list_straight_paths():
            self._add_path(path)
        self.add_cut(cut)

    def add_cut(self, cut: np.ndarray) -> bool:
        """Adds a cut, with the path that is longest for it; returns whether the cut is new."""
        if cut.tobytes() in self._added_keys:
            return False
        self._added_keys.add(cut.tobytes())
        row = self._alternative.time_rows(cut[None])[0]
        self._add_longest_path(row)
        self._add_fullest_moments(row)
        self._rows.append(row)
        self.cuts.append(cut)
        return True

    def round_mixture(self) -> np.ndarray | None:
        """Returns the cut whose stages do about as much as in the mixture; None without a mixture.

        int64 [stages + 1]. It may need more memory than there is.
        """
        if not len(self.cut_shares):
            return None
        costs = self._alternative.stage_costs
        work = np.sum([costs.prefixes[name] for name in ("forward", "backward", "weight")], axis=0)
        mean = self.cut_shares @ work[np.array(self.cuts[: len(self.cut_shares)])]
        cut = np.abs(work - mean[:, None]).argmin(axis=1)
        cut[0], cut[-1] = 0, len(costs.costs)
        stages = np.arange(len(cut))
        cut = np.maximum.accumulate(cut - stages) + stages  # at least a segment for each
        last = len(costs.costs) - stages[::-1]
        return np.minimum(cut, last)

    def restrict_to(self, graph: StageGraph) -> PathBounds:
        """Returns bounds for the cuts that a graph has, with the best paths and means of these."""
        part = PathBounds(self._alternative, self.lower_bound)
        paths = np.array(self.paths)
        longest = multiply_paths(paths, np.array(self._rows)).max(axis=1).argsort()
        through_ipus = range(self._alternative.num_ipus)
        for number in dict.fromkeys([*through_ipus, *longest[: -_MOST_PATHS - 1 : -1].tolist()]):
            part._add_path(paths[number])
        for cut in filter(graph.has_cut, self.cuts):
            part.add_cut(cut)
        part._means = self._list_best_means()
        part._fullest_moments |= self._fullest_moments
        return part

    def list_tables(self, graph: StageGraph, *, with_all_paths: bool = False) -> list[PathTable]:
        """Returns the tables of the best means of paths, and of the path through each IPU.

        Args:
          graph: the stages that the cuts may have.
          with_all_paths: whether to return the tables of all paths, not of those alone.
        """
        means = [mean.path for mean in self._list_best_means()]
        count = None if with_all_paths else self._alternative.num_ipus
        chosen = [*means, *self.paths[:count]]
        return [PathTable(graph, sum_path(self._alternative, path)) for path in chosen]

    def balance_boundaries(
        self, graph: StageGraph, limit: float, rounds: int, is_out_of_time: Callable[[], bool]
    ) -> None:
        """Raises the bound, and adds cuts, by mixtures of boundaries rather than of cuts.

        They take the place of first rounds of `tighten`, which know too few cuts for a mixture of
        them to fit in memory or to have equal stages.

        Args:
          graph: the stages that the cuts may have.
          limit: a bound of as many seconds will do.
          rounds: how often to try.
          is_out_of_time: whether to stop.
        """
        boundary_shares = BoundaryShares(self._alternative, graph)
        for cut in self.cuts:
            boundary_shares.add_cut(cut)
        scale, stalls = float((self.paths[-1] * self._rows[-1]).sum()) or 1.0, 0
        for _ in range(rounds):
            is_stuck = stalls > _MOST_STALLS and math.isfinite(limit)  # inf: no cut known to fit
            if is_stuck or is_out_of_time():
                break
            memory_paths = np.array([*self._fullest_moments.values()])
            memory_paths = memory_paths.reshape(-1, *self.paths[0].shape)
            mixture = boundary_shares.balance(np.array(self.paths), memory_paths, scale)
            if mixture is None:
                break
            bound_before, moments_before = max(self.lower_bound, 0.0), len(self._fullest_moments)
            is_new = self._bound_by(graph, mixture)
            if self.lower_bound >= limit:
                return
            boundary_shares.add_cut(self.cuts[-1])
            self._add_longest_path(mixture.row)
            self._add_fullest_moments(mixture.row)
            has_new_moments = len(self._fullest_moments) > moments_before
            may_rise = has_new_moments or (mixture.memory_shortage > EXCESS and is_new)
            stalls = 0 if self.lower_bound > bound_before * (1 + _LEAST_RISE) else stalls + 1
            if stalls and not may_rise:
                break
        for cut in boundary_shares.list_cuts():
            self.add_cut(cut)

    def _bound_by(self, graph: StageGraph, mixture: BalancedMixture) -> bool:
        """Raises the bound to that of a mixture's mean of paths; returns whether a cut is new."""
        if mixture.memory_shortage > EXCESS:
            sums = sum_path(self._alternative, mixture.excess)
            most = EXCESS * float(np.abs(mixture.excess[:, CONSTANT]).sum())
            if graph.find_least_after(sums)[0, 0] > most:
                self.lower_bound = math.inf
                return False
        return self._find_least_cut(graph, mixture.seconds + mixture.excess)

    def tighten(
        self,
        graph: StageGraph,
        limit: float,
        rounds: int,
        is_out_of_time: Callable[[], bool],
        *,
        may_give_up: bool = False,
    ) -> None:
        """Raises the bound, and adds better cuts, by mixtures of the cuts that are known.

        Args:
          graph: the stages that the cuts may have.
          limit: a bound of as many seconds will do.
          rounds: how often to try.
          is_out_of_time: whether to stop.
          may_give_up: whether to stop when it is clear that no bound will reach the limit.
        """
        is_smooth = False
        for _ in range(rounds):
            mean, cut_shares = self._weigh() if self.cuts else (np.mean(self.paths, axis=0), None)
            best = self._list_best_means(1)
            is_new = self._find_least_cut(graph, (mean + best[0].path) / 2 if is_smooth else mean)
            if self.lower_bound >= limit or is_out_of_time():
                return
            if cut_shares is not None:
                self.cut_shares = cut_shares
                mixture = np.tensordot(cut_shares, np.array(self._rows[: len(cut_shares)]), 1)
                reached = self._add_longest_path(mixture)
                self._add_fullest_moments(mixture)
                gap, tolerance = reached - self.lower_bound, 0.0
                if may_give_up:
                    tolerance = min((limit - self.lower_bound) * _HOPELESS, limit - reached)
                if gap <= max(_CLOSE * reached, tolerance):
                    return
            is_smooth = is_new

    def _find_least_cut(self, graph: StageGraph, path: np.ndarray) -> bool:
        """Adds the cut for which a mean of paths is least; returns whether it is new."""
        sums = sum_path(self._alternative, path)
        least_after = graph.find_least_after(sums)
        lower_bound = float(least_after[0, 0])
        self._means.append(_Mean(lower_bound, path))
        self.lower_bound = max(self.lower_bound, lower_bound)
        return bool(np.isfinite(lower_bound)) and self.add_cut(graph.trace_cut(sums, least_after))

    def _list_best_means(self, count: int = _MOST_MEANS) -> list[_Mean]:
        return heapq.nlargest(count, self._means, key=lambda mean: mean.lower_bound)

    def _add_longest_path(self, row: np.ndarray) -> float:
        """Adds the path that is longest if stages take a row; returns its seconds."""
        path = self._alternative.find_longest_path(row)
        self._add_path(path)
        return float((path * row).sum())

    def _add_path(self, path: np.ndarray) -> None:
        if path.tobytes() not in self._added_keys or len(self.paths) < self._alternative.num_ipus:
            self._added_keys.add(path.tobytes())
            self.paths.append(path)

    def _add_fullest_moments(self, row: np.ndarray) -> None:
        """Adds for each IPU the moment when it is fullest, if stages take a row."""
        for number, paths in enumerate(self._alternative.memory_paths):
            fullest = int(multiply_paths(paths, row[None]).argmax())
            self._fullest_moments[number, fullest] = paths[fullest]

    def _weigh(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean of the paths for the mixture of cuts whose longest path is shortest.

        Memory that the mixture lacks costs seconds in the mean.

        Returns:
          float64 [stages, COLUMNS]; and the shares of the cuts in the mixture.
        """
        from scipy import optimize  # which JAX requires, and which takes long to import

        paths, rows = np.array(self.paths), np.array(self._rows)
        memory_paths = np.array([*self._fullest_moments.values()]).reshape(-1, *rows.shape[1:])
        seconds, excess = multiply_paths(paths, rows), multiply_paths(memory_paths, rows)
        scale, num_cuts = seconds.max() or 1.0, len(rows)
        # The unknowns: the shares, the seconds of the longest path, and the excess of memory.
        constraints = np.zeros((len(paths) + len(memory_paths), num_cuts + 2))
        constraints[:, :num_cuts] = np.concatenate([seconds / scale, excess])
        constraints[: len(paths), num_cuts] = -1.0
        constraints[len(paths) :, num_cuts + 1] = -1.0
        solution = cast(
            Any,
            optimize.linprog(
                [*[0.0] * num_cuts, 1.0, PRICE_OF_MEMORY],
                A_ub=constraints,
                b_ub=np.zeros(len(constraints)),
                A_eq=[[*[1.0] * num_cuts, 0.0, 0.0]],
                b_eq=[1.0],
                bounds=[*[(0, None)] * num_cuts, (None, None), (0, None)],
                method="highs",
            ),
        )
        weights = np.maximum(-solution.ineqlin.marginals, 0.0)
        weights /= weights[: len(paths)].sum()
        mean = np.tensordot(weights[: len(paths)], paths, 1)
        mean += np.tensordot(weights[len(paths) :] * scale, memory_paths, 1)
        return mean, np.maximum(solution.x[:num_cuts], 0.0)


def multiply_paths(paths: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns what each path adds up to for each row of stages, float64 [paths, rows]."""
    size = math.prod(rows.shape[1:])
    return paths.reshape(-1, size) @ rows.reshape(-1, size).T
