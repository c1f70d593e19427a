"""The search for the fastest cut of one alternative, from a rough cut to one that is proven.

A rough and a good cut come with a bound on all cuts, see `path_bounds`. The fastest cut is found by
branch and bound: the cuts that a bound allows to be faster are divided into parts, by where a
boundary may be, until they are few enough to be timed one by one.
"""

from __future__ import annotations

import dataclasses as dc
import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ipujax.planner.alternative import ROUNDING, Alternative
from ipujax.planner.bounds import StageTables
from ipujax.planner.path_bounds import PathBounds, multiply_paths
from ipujax.planner.stage_costs import Cuts
from ipujax.planner.stage_graph import StageGraph

_FIRST_ROUNDS = 3  # of tightening the bound on all cuts, for a rough cut
_ROUNDS_OF_SHARES = 12  # of mixtures of boundaries, for a rough cut where IPUs have several stages
_ROUNDS = 80  # of tightening the bound on all cuts, for a good cut
_ROUNDS_OF_PART = 30  # of tightening the bound on a part of the cuts
_LEAST_SPREAD = 0.01  # of a boundary in the mixture, in segments squared, to divide cuts there
_MOST_LISTED = 1e9  # cuts of a graph: where there are more, none are listed
_MOST_BEGINNINGS = 1 << 17  # first stages of cuts that are listed at once
_MOST_TIMED = 1 << 29  # tasks of the cuts that are timed rather than divided
_TOGETHER = 1024  # cuts whose schedules are timed at once
_FEWEST_MOVES = 16  # of boundaries, however many tasks are timed for each
_MOST_MOVED = 1 << 16  # tasks that are timed while boundaries are moved
_MOST_PAIRS = 1 << 11  # cuts with two boundaries moved that are timed at once


@dc.dataclass(frozen=True)
class FoundCut:
    """The fastest cut that a search has found below a limit.

    Attributes:
      cut: where each stage begins, and the number of segments; None if none is below the limit.
      seconds: the seconds of an update with the cut; the limit if there is none.
      proven: whether no other cut is faster.
    """

    cut: tuple[int, ...] | None
    seconds: float
    proven: bool


def find_rough_cut(
    alternative: Alternative,
    graph: StageGraph,
    bounds: PathBounds,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> FoundCut:
    """Finds a cut of an alternative quickly, and a bound on all cuts: see `find_good_cut`."""
    if alternative.timed.shares_ipus:
        bounds.balance_boundaries(graph, limit, _ROUNDS_OF_SHARES, is_out_of_time)
    else:
        bounds.tighten(graph, limit, _FIRST_ROUNDS, is_out_of_time)
    return move_boundaries(alternative, np.array(bounds.cuts), moves=0)


def find_good_cut(
    alternative: Alternative,
    graph: StageGraph,
    bounds: PathBounds,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> tuple[FoundCut, float]:
    """Finds a good cut of an alternative, and seconds that no cut is faster than.

    Args:
      alternative: all choices but the cut.
      graph: the stages that cuts may have.
      bounds: the bound, and at least a cut, that are known; what is found is added.
      limit: seconds that a cut should take less than, to be worth more work.
      is_out_of_time: whether to stop.
    """
    bounds.tighten(graph, limit, _ROUNDS, is_out_of_time, may_give_up=True)
    lower_bound = bounds.lower_bound
    if lower_bound < limit and not is_out_of_time():
        cut, seconds = graph.find_bottleneck(bounds.list_tables(graph))
        bounds.add_cut(cut)
        lower_bound = max(lower_bound, seconds)
    moves = None if lower_bound < limit else 0
    return move_boundaries(alternative, np.array(bounds.cuts), moves), lower_bound


def move_boundaries(alternative: Alternative, cuts: Cuts, moves: int | None = None) -> FoundCut:
    """Takes the best of some cuts, and moves its boundaries while that helps.

    A cut that fits is better than one that does not. Of two that fit the faster one is better; of
    two that do not, the one that lacks less memory.

    Args:
      alternative: all choices but the cut.
      cuts: the cuts to begin with.
      moves: how often to move boundaries; None for as often as there is time for.
    """
    best, best_rank, moves_pairs = cuts[0], (np.inf, np.inf), False
    if moves is None:
        tasks = 2 * alternative.stages * alternative.timed.micro_batches
        moves = _FEWEST_MOVES + _MOST_MOVED // tasks
    for _ in range(moves + 1):
        number, (excess, seconds) = _choose_best(alternative, cuts)
        if (excess, seconds / (1 - ROUNDING)) < best_rank:
            best, best_rank, moves_pairs = cuts[number], (excess, seconds), False
        elif moves_pairs:
            break
        else:
            moves_pairs = True
        cuts = _list_pairs(best) if moves_pairs else _list_neighbours(best)
        if not len(cuts):
            break
    excess, seconds = best_rank
    if excess > 0:
        return FoundCut(None, np.inf, proven=False)
    return FoundCut(tuple(map(int, best)), seconds, proven=False)


def _choose_best(alternative: Alternative, cuts: Cuts) -> tuple[int, tuple[float, float]]:
    """Returns the number of the best of some cuts, the memory that it lacks, and its seconds."""
    excess = alternative.memory_shortage(cuts)
    number = int(excess.argmin())
    if excess[number] > 0:
        return number, (float(excess[number]), np.inf)
    fitting = np.flatnonzero(excess == 0)
    seconds = alternative.seconds(cuts[fitting])
    fastest = int(seconds.argmin())
    return int(fitting[fastest]), (0.0, float(seconds[fastest]))


def _list_pairs(cut: np.ndarray) -> Cuts:
    """Returns cuts with two boundaries moved by a few segments: all, or some if they are many."""
    boundaries, steps = range(1, len(cut) - 1), (-4, -3, -2, -1, 1, 2, 3, 4)
    singles = [*itertools.product(boundaries, steps)]
    first, second = np.triu_indices(len(singles), 1)
    if len(first) > _MOST_PAIRS:
        chosen = np.random.default_rng(0).choice(len(first), _MOST_PAIRS, replace=False)
        first, second = first[chosen], second[chosen]
    cuts = np.tile(cut, (len(first), 1))
    rows = np.arange(len(cuts))
    for moves_of_pairs in (first, second):
        boundary, step = np.array(singles or [(0, 0)])[moves_of_pairs].T
        cuts[rows, boundary] += step
    return cuts[(np.diff(cuts, axis=1) > 0).all(axis=1)]


def _list_neighbours(cut: np.ndarray) -> Cuts:
    """Returns all cuts with up to three neighbouring boundaries moved by a few segments."""
    moves: list[np.ndarray] = []
    last = len(cut) - 2
    for first in range(1, last + 1):
        for end in range(first, min(first + 2, last) + 1):
            for step in (-8, -4, -2, -1, 1, 2, 4, 8):
                moved = cut.copy()
                moved[first : end + 1] += step
                moves.append(moved)
    cuts = np.array(moves, int).reshape(-1, len(cut))
    return cuts[(np.diff(cuts, axis=1) > 0).all(axis=1)]


_Ranges = tuple[np.ndarray, np.ndarray]
"""The smallest and the largest positions of boundaries, int64 [stages + 1] each."""


class _Part(NamedTuple):
    """The cuts whose boundaries are in some ranges; parts with lower bounds come first.

    Attributes:
      lower_bound: seconds that none of these cuts is faster than.
      number: the smaller, the later the part was made; of parts with equal bounds the latest comes
        first.
      first: int64 [stages + 1]: the smallest positions of boundaries.
      last: int64 [stages + 1]: the largest.
      bounds: bounds that hold for these cuts, and perhaps for more.
    """

    lower_bound: float
    number: int
    first: np.ndarray
    last: np.ndarray
    bounds: PathBounds


class CutParts:
    """The parts of the cuts of an alternative that are left to search.

    Args:
      alternative: all choices but the cut.
      bounds: the bounds on all its cuts.
    """

    def __init__(self, alternative: Alternative, bounds: PathBounds):
        self._numbers = itertools.count(0, -1)
        segments = len(alternative.stage_costs.costs)
        ends = np.zeros((2, alternative.stages + 1), int)
        self._parts: list[_Part] = []
        self._push(ends[0], ends[1] + segments, bounds)

    @property
    def lower_bound(self) -> float:
        """The seconds that no cut in these parts is faster than; inf if all are searched."""
        return self._parts[0].lower_bound if self._parts else np.inf

    def peek(self) -> _Part:
        """Returns the part with the least bound."""
        return self._parts[0]

    def replace(self, part: _Part, halves: Sequence[tuple[_Ranges, PathBounds]]) -> None:
        """Replaces the first part by the halves of it that are left to search."""
        heapq.heappop(self._parts)
        for (first, last), bounds in halves:
            self._push(np.maximum(first, part.first), np.minimum(last, part.last), bounds)

    def _push(self, first: np.ndarray, last: np.ndarray, bounds: PathBounds) -> None:
        heapq.heappush(
            self._parts, _Part(bounds.lower_bound, next(self._numbers), first, last, bounds)
        )


def find_fastest_cut(
    alternative: Alternative,
    parts: CutParts,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> FoundCut:
    """Finds the fastest cut of an alternative that takes less than some seconds.

    Cuts that a bound allows to be faster are listed and timed where they are few. Where they are
    many they are divided, by where a boundary may be, and each half has closer bounds.

    Args:
      alternative: all choices but the cut.
      parts: what is left to search; what is searched is taken out.
      limit: the seconds that a cut must take less than.
      is_out_of_time: whether to stop, with what is found by then.
    """
    search = _FastestCutSearch(alternative, limit, is_out_of_time)
    graph = StageGraph(StageTables(alternative).possible)
    while parts.lower_bound < search.limit * (1 - ROUNDING) and not is_out_of_time():
        part = parts.peek()
        inside = graph.keep_between(part.first, part.last)
        halves = search.search_part(inside, part.bounds)
        parts.replace(part, halves)
    proven = parts.lower_bound >= search.limit * (1 - ROUNDING)
    best = None if search.best is None else tuple(search.best)
    return FoundCut(best, search.limit, proven)


class _FastestCutSearch:
    """The search for the cut that is faster than a limit and all others.

    Attributes:
      limit: the seconds of the best cut, or those that it must take less than.
      best: the best cut; None if there is none below the limit.
    """

    def __init__(self, alternative: Alternative, limit: float, is_out_of_time: Callable[[], bool]):
        self._alternative, self._is_out_of_time = alternative, is_out_of_time
        self.limit = limit
        self.best: Sequence[int] | None = None

    def search_part(
        self, graph: StageGraph, parent_bounds: PathBounds
    ) -> Sequence[tuple[_Ranges, PathBounds]]:
        """Searches the cuts of a graph; returns the halves of them that are left to search.

        Args:
          graph: the stages that the cuts may have.
          parent_bounds: bounds that hold for these cuts, and for others.
        """
        graph = self._rule_out(graph, parent_bounds)
        bounds = parent_bounds.restrict_to(graph)
        bounds.tighten(graph, self.limit, _ROUNDS_OF_PART, self._is_out_of_time, may_give_up=True)
        if bounds.cuts:
            moved_cut = move_boundaries(self._alternative, np.array(bounds.cuts))
            self._keep_best(moved_cut.cut, moved_cut.seconds)
        if bounds.lower_bound >= self.limit * (1 - ROUNDING):
            return ()
        graph = self._rule_out(graph, bounds)
        cuts = self._list_cuts(graph, bounds)
        if cuts is not None and self._time_cuts(cuts, bounds.paths):
            return ()
        return [(half, bounds) for half in _divide(graph, bounds)]

    def _rule_out(self, graph: StageGraph, bounds: PathBounds) -> StageGraph:
        return graph.keep_faster(bounds.list_tables(graph), self.limit * (1 - ROUNDING))

    def _list_cuts(self, graph: StageGraph, bounds: PathBounds) -> Cuts | None:
        """Lists the cuts that bounds allow to be faster; None if they are too many."""
        if graph.count_cuts()[0, 0] > _MOST_LISTED:
            return None
        tables = bounds.list_tables(graph, with_all_paths=True)
        tasks = 2 * self._alternative.stages * self._alternative.timed.micro_batches
        beginnings = np.zeros((1, 1), int)
        sums = np.zeros((1, len(tables)))
        for stage in range(self._alternative.stages):
            starts = beginnings[:, -1]
            row, end = np.nonzero(graph.possible[stage][starts])
            for number, table in enumerate(tables):
                sum_before = sums[row, number] + table.sums.entering[stage, starts[row]]
                is_faster = sum_before + table.least_after[stage, end] < self.limit * (1 - ROUNDING)
                row, end = row[is_faster], end[is_faster]
            if len(row) > _MOST_BEGINNINGS:
                return None
            steps = np.array(
                [t.sums.entering[stage, starts[row]] + t.sums.leaving[stage, end] for t in tables]
            )
            sums = sums[row] + steps.T
            beginnings = np.concatenate([beginnings[row], end[:, None]], axis=1)
        return beginnings if len(beginnings) * tasks <= _MOST_TIMED else None

    def _time_cuts(self, cuts: Cuts, paths: Sequence[np.ndarray]) -> bool:
        """Times the schedules of cuts, those first that bounds allow to be fastest.

        Returns:
          whether all were timed that may be faster than the best, before time was over.
        """
        cuts = cuts[self._alternative.fits_in_memory(cuts)]
        rows = self._alternative.time_rows(cuts)
        lower_bounds = multiply_paths(np.array(paths), rows).max(axis=0)
        order = lower_bounds.argsort(kind="stable")
        for first in range(0, len(order), _TOGETHER):
            chosen = order[first : first + _TOGETHER]
            chosen = chosen[lower_bounds[chosen] < self.limit * (1 - ROUNDING)]
            if not len(chosen):
                return True
            if self._is_out_of_time():
                return False
            seconds = self._alternative.seconds(cuts[chosen])
            fastest = int(seconds.argmin())
            self._keep_best(cuts[chosen[fastest]].tolist(), float(seconds[fastest]))
        return True

    def _keep_best(self, cut: Sequence[int] | None, seconds: float) -> None:
        if seconds < self.limit * (1 - ROUNDING):
            self.best, self.limit = cut, seconds


def _divide(graph: StageGraph, bounds: PathBounds) -> list[_Ranges]:
    """Returns the ranges of two halves of the cuts; the best mixture has cuts of both."""
    cuts_through = graph.count_cuts()
    counts = (cuts_through > 0).sum(axis=1)
    cut_shares = bounds.cut_shares if len(bounds.cut_shares) else np.ones(1)
    cuts = np.array(bounds.cuts[: len(cut_shares)])
    mean = cut_shares @ cuts
    spread = cut_shares @ (cuts - mean) ** 2 * (counts > 1)
    boundary = int(spread.argmax() if spread.max() > _LEAST_SPREAD else counts.argmax())
    positions = np.flatnonzero(cuts_through[boundary])
    middle = int(np.clip(mean[boundary], positions[0], positions[-1] - 1))
    first, last = (
        np.zeros(len(cuts_through), int),
        np.full(len(cuts_through), cuts_through.shape[1] - 1),
    )
    low, high = last.copy(), first.copy()
    low[boundary], high[boundary] = middle, middle + 1
    return [(high, last), (first, low)]
