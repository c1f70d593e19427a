"""The fastest cut for one alternative: every cut that could be faster is tried."""

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

_ROUNDS = 80  # of tightening the bound on all cuts
_ROUNDS_OF_PART = 30  # and on a part of them
_LEAST_SPREAD = 0.01  # of a boundary in the mixture, in segments squared, to divide cuts there
_MOST_LISTED = 1e9  # cuts that bounds leave, of which those are listed that may be faster
_MOST_BEGINNINGS = 1 << 17  # of cuts that are listed at once
_TOGETHER = 1024  # cuts whose schedules are timed at once
_MOST_MOVED = 1 << 16  # tasks that are timed while boundaries are moved
_FEWEST_MOVES = 16
_ROUNDS_OF_SHARES = 12  # of finding the shares of boundaries, where IPUs have several stages
_ROUNDS_OF_FIRST = 3  # before all alternatives have had these
_MOST_PAIRS = 1 << 11  # cuts with two boundaries moved that are timed at once
_MOST_TIMED = 1 << 29  # tasks of the cuts that are timed rather than divided


@dc.dataclass(frozen=True)
class FoundCut:
    """The fastest cut that was found.

    Attributes:
      cut: where each stage begins, and the number of segments; None if no cut is as fast as asked.
      seconds: the seconds of an update; those that were asked for if there is no cut.
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
    """Finds a cut of an alternative quickly, and a bound on all: see `find_good_cut`."""
    if alternative.timed.shares_ipus:
        bounds.balance_boundaries(graph, limit, _ROUNDS_OF_SHARES, is_out_of_time)
    else:
        bounds.tighten(graph, limit, _ROUNDS_OF_FIRST, is_out_of_time)
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
      bounds: what is known of these cuts, at least one; what is found is added to it.
      limit: seconds that a cut should take less than, to be worth more work.
      is_out_of_time: whether to stop.
    """
    bounds.tighten(graph, limit, _ROUNDS, is_out_of_time, may_give_up=True)
    least = bounds.seconds
    if least < limit and not is_out_of_time():
        cut, seconds = graph.find_bottleneck(bounds.list_tables(graph))
        bounds.add_cut(cut)
        least = max(least, seconds)
    moves = None if least < limit else 0
    return move_boundaries(alternative, np.array(bounds.cuts), moves), least


def move_boundaries(
    alternative: Alternative, candidates: Cuts, moves: int | None = None
) -> FoundCut:
    """Takes the best of some cuts, and moves its boundaries while that helps.

    One that fits is better than one that does not; of the former the faster one is, of the latter
    the one with the smaller excess.

    Args:
      alternative: all choices but the cut.
      candidates: the cuts to begin with.
      moves: how often to move boundaries; None for as often as there is time for.
    """
    best, found, moves_pairs = candidates[0], (np.inf, np.inf), False
    if moves is None:
        tasks = 2 * alternative.stages * alternative.timed.micro_batches
        moves = _FEWEST_MOVES + _MOST_MOVED // tasks
    for _ in range(moves + 1):
        number, (excess, seconds) = _choose_best(alternative, candidates)
        if (excess, seconds / (1 - ROUNDING)) < found:
            best, found, moves_pairs = candidates[number], (excess, seconds), False
        elif moves_pairs:
            break
        else:
            moves_pairs = True
        candidates = _list_pairs(best) if moves_pairs else _list_neighbours(best)
        if not len(candidates):
            break
    excess, seconds = found
    if excess > 0:
        return FoundCut(None, np.inf, proven=False)
    return FoundCut(tuple(map(int, best)), seconds, proven=False)


def _choose_best(alternative: Alternative, cuts: Cuts) -> tuple[int, tuple[float, float]]:
    """Returns the number of the best of some cuts, its excess of memory, and its seconds."""
    excess = alternative.lacking_shares(cuts)
    number = int(excess.argmin())
    if excess[number] > 0:
        return number, (float(excess[number]), np.inf)
    fitting = np.flatnonzero(excess == 0)
    seconds = alternative.seconds(cuts[fitting])
    fastest = int(seconds.argmin())
    return int(fitting[fastest]), (0.0, float(seconds[fastest]))


def _list_pairs(cut: np.ndarray) -> Cuts:
    """Returns cuts with two boundaries a few segments elsewhere: all, or some of the many."""
    boundaries, steps = range(1, len(cut) - 1), (-4, -3, -2, -1, 1, 2, 3, 4)
    singles = [*itertools.product(boundaries, steps)]
    first, second = np.triu_indices(len(singles), 1)
    if len(first) > _MOST_PAIRS:
        chosen = np.random.default_rng(0).choice(len(first), _MOST_PAIRS, replace=False)
        first, second = first[chosen], second[chosen]
    cuts = np.tile(cut, (len(first), 1))
    rows = np.arange(len(cuts))
    for which in (first, second):
        boundary, step = np.array(singles or [(0, 0)])[which].T
        cuts[rows, boundary] += step
    return cuts[(np.diff(cuts, axis=1) > 0).all(axis=1)]


def _list_neighbours(cut: np.ndarray) -> Cuts:
    """Returns all cuts with up to three neighbouring boundaries a few segments elsewhere."""
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
    """The cuts whose boundaries are in some ranges; the one of the least bound comes first.

    Attributes:
      least: seconds that none of them is faster than.
      number: tells parts apart; of equal bounds the latest part has the least.
      first: int64 [stages + 1]: the smallest positions of boundaries.
      last: the largest.
      known: what is known of them.
    """

    least: float
    number: int
    first: np.ndarray
    last: np.ndarray
    known: PathBounds


class CutParts:
    """The parts of the cuts of an alternative that are left to search.

    Args:
      alternative: all choices but the cut.
      known: what is known of all cuts.
    """

    def __init__(self, alternative: Alternative, known: PathBounds):
        self._numbers = itertools.count(0, -1)
        segments = len(alternative.stage_costs.costs)
        ends = np.zeros((2, alternative.stages + 1), int)
        self._parts: list[_Part] = []
        self._push(ends[0], ends[1] + segments, known)

    @property
    def least(self) -> float:
        """Seconds that no cut in them is faster than; inf if all are searched."""
        return self._parts[0].least if self._parts else np.inf

    def peek(self) -> _Part:
        """Returns the part with the least bound."""
        return self._parts[0]

    def replace(self, part: _Part, halves: Sequence[tuple[_Ranges, PathBounds]]) -> None:
        """Puts what is left to search of the first part in its place."""
        heapq.heappop(self._parts)
        for (first, last), known in halves:
            self._push(np.maximum(first, part.first), np.minimum(last, part.last), known)

    def _push(self, first: np.ndarray, last: np.ndarray, known: PathBounds) -> None:
        heapq.heappush(self._parts, _Part(known.seconds, next(self._numbers), first, last, known))


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
    while parts.least < search.limit * (1 - ROUNDING) and not is_out_of_time():
        part = parts.peek()
        inside = graph.keep_between(part.first, part.last)
        halves = search.search_part(inside, part.known)
        parts.replace(part, halves)
    proven = parts.least >= search.limit * (1 - ROUNDING)
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
        self, graph: StageGraph, known: PathBounds
    ) -> Sequence[tuple[_Ranges, PathBounds]]:
        """Searches the cuts of a graph; returns the halves that are left to search."""
        graph = self._rule_out(graph, known)
        bounds = known.restrict_to(graph)
        bounds.tighten(graph, self.limit, _ROUNDS_OF_PART, self._is_out_of_time, may_give_up=True)
        if bounds.cuts:
            moved_cut = move_boundaries(self._alternative, np.array(bounds.cuts))
            self._keep_best(moved_cut.cut, moved_cut.seconds)
        if bounds.seconds >= self.limit * (1 - ROUNDING):
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
                so_far = sums[row, number] + table.sums.entering[stage, starts[row]]
                is_faster = so_far + table.rest[stage, end] < self.limit * (1 - ROUNDING)
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
        least = multiply_paths(np.array(paths), rows).max(axis=0)
        order = least.argsort(kind="stable")
        for first in range(0, len(order), _TOGETHER):
            chosen = order[first : first + _TOGETHER]
            chosen = chosen[least[chosen] < self.limit * (1 - ROUNDING)]
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
    """Returns the ranges of two halves of the cuts, neither of which has all that mix best."""
    ways = graph.count_cuts()
    counts = (ways > 0).sum(axis=1)
    shares = bounds.shares if len(bounds.shares) else np.ones(1)
    cuts = np.array(bounds.cuts[: len(shares)])
    mean = shares @ cuts
    spread = shares @ (cuts - mean) ** 2 * (counts > 1)
    boundary = int(spread.argmax() if spread.max() > _LEAST_SPREAD else counts.argmax())
    positions = np.flatnonzero(ways[boundary])
    middle = int(np.clip(mean[boundary], positions[0], positions[-1] - 1))
    first, last = np.zeros(len(ways), int), np.full(len(ways), ways.shape[1] - 1)
    low, high = last.copy(), first.copy()
    low[boundary], high[boundary] = middle, middle + 1
    return [(high, last), (first, low)]
