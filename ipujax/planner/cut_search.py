"""The fastest cut for one alternative: every cut that could be faster is tried."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

import numpy as np

from ipujax.planner.alternative import ROUNDING, Alternative
from ipujax.planner.path_bounds import PathBounds
from ipujax.planner.stage_costs import Cuts
from ipujax.planner.stage_graph import PathTable, StageGraph, sum_path

_ROUNDS = 80  # of tightening the bound on all cuts
_ROUNDS_OF_PART = 30  # and on a part of them
_MOST_TABLES = 8  # of the longest paths, by whose sums stages are ruled out
_MOST_BEGINNINGS = 1 << 16  # of cuts that are listed at once
_TOGETHER = 256  # cuts whose schedules are timed at once
_MOST_MOVED = 1 << 16  # tasks that are timed while boundaries are moved
_MOST_TIMED = 1 << 23  # tasks of the cuts that are timed rather than divided


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

    def find_bottleneck() -> float:
        cut, seconds = graph.find_bottleneck(list_tables(alternative, graph, bounds))
        bounds.add_cut(cut)
        return seconds

    least = find_bottleneck()
    if least < limit:
        bounds.tighten(limit, _ROUNDS, is_out_of_time)
        least = max(find_bottleneck(), bounds.seconds)
    return move_boundaries(alternative, np.array(bounds.cuts)), least


def move_boundaries(alternative: Alternative, candidates: Cuts) -> FoundCut:
    """Finds the fastest of some cuts that fits, and moves its boundaries while that helps."""
    best, seconds = None, np.inf
    tasks = 2 * alternative.stages * alternative.timed.micro_batches
    for _ in range(2 + _MOST_MOVED // tasks):
        candidates = candidates[alternative.fits_in_memory(candidates)]
        if not len(candidates):
            break
        times = alternative.seconds(candidates)
        fastest = int(times.argmin())
        if times[fastest] >= seconds * (1 - ROUNDING):
            break
        best, seconds = candidates[fastest], float(times[fastest])
        candidates = _list_neighbours(best)
    cut = None if best is None else tuple(map(int, best))
    return FoundCut(cut, seconds, proven=False)


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


def find_fastest_cut(
    alternative: Alternative,
    graph: StageGraph,
    bounds: PathBounds,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> FoundCut:
    """Finds the fastest cut of an alternative that takes less than some seconds.

    Cuts that a bound allows to be faster are listed and timed where they are few. Where they are
    many they are divided, by where a boundary may be, and each half has closer bounds.

    Args:
      alternative: all choices but the cut.
      graph: the stages that cuts may have.
      bounds: what is known of these cuts.
      limit: the seconds that a cut must take less than.
      is_out_of_time: whether to stop, with what is found by then.
    """
    return _FastestCutSearch(alternative, limit, is_out_of_time).run(graph, bounds)


class _FastestCutSearch:
    """The search for the cut that is faster than a limit and all others."""

    def __init__(
        self, alternative: Alternative, limit: float, is_out_of_time: Callable[[], bool]
    ):
        self._alternative, self._is_out_of_time = alternative, is_out_of_time
        self._limit = limit
        self._best: np.ndarray | None = None

    def run(self, graph: StageGraph, bounds: PathBounds) -> FoundCut:
        """Searches all cuts of a graph, of which something is known."""
        parts, proven = [(graph, bounds)], True
        while parts:
            if self._is_out_of_time():
                proven = False
                break
            parts += self._search_part(*parts.pop())
        best = None if self._best is None else tuple(map(int, self._best))
        return FoundCut(best, self._limit, proven)

    def _search_part(
        self, graph: StageGraph, known: PathBounds
    ) -> Sequence[tuple[StageGraph, PathBounds]]:
        """Searches the cuts of a graph; returns the parts of it that are left to search."""
        graph = self._rule_out(graph, known)
        bounds = PathBounds(self._alternative, graph, known.paths, _select_cuts(graph, known.cuts))
        bounds.tighten(self._limit, _ROUNDS_OF_PART, self._is_out_of_time)
        self._keep_best(bounds.best_cut, bounds.best_seconds)
        if bounds.seconds >= self._limit * (1 - ROUNDING):
            return ()
        graph = self._rule_out(graph, bounds)
        cuts = self._list_cuts(graph, bounds)
        if cuts is not None:
            self._time_cuts(cuts, bounds.paths)
            return ()
        return [(half, bounds) for half in _divide(graph)]

    def _rule_out(self, graph: StageGraph, bounds: PathBounds) -> StageGraph:
        return graph.keep_faster(
            list_tables(self._alternative, graph, bounds), self._limit * (1 - ROUNDING)
        )

    def _list_cuts(self, graph: StageGraph, bounds: PathBounds) -> Cuts | None:
        """Lists the cuts that bounds allow to be faster; None if they are too many."""
        tables = list_tables(self._alternative, graph, bounds)
        tasks = 2 * self._alternative.stages * self._alternative.timed.micro_batches
        beginnings = np.zeros((1, 1), int)
        sums = np.zeros((1, len(tables)))
        for stage in range(self._alternative.stages):
            starts = beginnings[:, -1]
            row, end = np.nonzero(graph.possible[stage][starts])
            for number, table in enumerate(tables):
                so_far = sums[row, number] + table.sums.entering[stage, starts[row]]
                is_faster = so_far + table.rest[stage, end] < self._limit * (1 - ROUNDING)
                row, end = row[is_faster], end[is_faster]
            if len(row) > _MOST_BEGINNINGS:
                return None
            steps = np.array(
                [t.sums.entering[stage, starts[row]] + t.sums.leaving[stage, end] for t in tables]
            )
            sums = sums[row] + steps.T
            beginnings = np.concatenate([beginnings[row], end[:, None]], axis=1)
        return beginnings if len(beginnings) * tasks <= _MOST_TIMED else None

    def _time_cuts(self, cuts: Cuts, paths: Sequence[np.ndarray]) -> None:
        """Times the schedules of cuts, those first that bounds allow to be fastest."""
        cuts = cuts[self._alternative.fits_in_memory(cuts)]
        rows = self._alternative.time_rows(cuts)
        least = np.einsum("psk,csk->pc", np.array(paths), rows).max(axis=0)
        order = least.argsort(kind="stable")
        for first in range(0, len(order), _TOGETHER):
            chosen = order[first : first + _TOGETHER]
            chosen = chosen[least[chosen] < self._limit * (1 - ROUNDING)]
            if not len(chosen):
                return
            seconds = self._alternative.seconds(cuts[chosen])
            fastest = int(seconds.argmin())
            self._keep_best(cuts[chosen[fastest]], float(seconds[fastest]))

    def _keep_best(self, cut: np.ndarray | None, seconds: float) -> None:
        if seconds < self._limit * (1 - ROUNDING):
            self._best, self._limit = cut, seconds


def list_tables(
    alternative: Alternative, graph: StageGraph, bounds: PathBounds
) -> list[PathTable]:
    """Returns the sums of the best mean of paths, of paths through all IPUs, and of the longest."""
    through_ipus, others = bounds.paths[: alternative.num_ipus], bounds.paths[alternative.num_ipus :]
    if others and bounds.cuts:
        best = bounds.cuts[-1] if bounds.best_cut is None else bounds.best_cut
        row = alternative.time_rows(best[None])[0]
        others.sort(key=lambda path: -float((path * row).sum()))
    chosen = [bounds.mean, *through_ipus, *others[:_MOST_TABLES]]
    return [PathTable(graph, sum_path(alternative, path)) for path in chosen]


def _select_cuts(graph: StageGraph, cuts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the cuts that are cuts of a graph."""
    stages = np.arange(len(graph.possible))
    return [cut for cut in cuts if graph.possible[stages, cut[:-1], cut[1:]].all()]


def _divide(graph: StageGraph) -> list[StageGraph]:
    """Returns two graphs that have half of the cuts each, about."""
    ways = graph.count_cuts()
    spread = (ways > 0).sum(axis=1)
    boundary = int(spread.argmax())
    share = np.cumsum(ways[boundary]) / ways[boundary].sum()
    positions = np.flatnonzero(ways[boundary])
    middle = min(int(np.searchsorted(share, 0.5)), int(positions[-1]) - 1)
    first = np.zeros(len(ways), int)
    last = np.full(len(ways), ways.shape[1] - 1)
    low, high = last.copy(), first.copy()
    low[boundary], high[boundary] = middle, middle + 1
    return [graph.keep_between(high, last), graph.keep_between(first, low)]
