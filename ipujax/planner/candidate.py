"""A candidate of a search: an alternative with its best known cut and bounds on all its cuts."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
import time
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import EXCESS, ROUNDING, Alternative
from ipujax.planner.bounds import (
    StageTables,
    least_seconds_by_sums,
    least_seconds_of_any_cut,
)
from ipujax.planner.cut_search import (
    CutParts,
    FoundCut,
    find_fastest_cut,
    find_good_cut,
    find_rough_cut,
    move_boundaries,
)
from ipujax.planner.folded_stages import is_folded, may_fit_folded
from ipujax.planner.local_search import LocalSearch
from ipujax.planner.path_bounds import PathBounds
from ipujax.planner.stage_costs import Cuts
from ipujax.planner.stage_graph import StageGraph

_MOST_ROUNDS = 80  # of tightening the bound on all cuts, before they are divided into parts

Kind = tuple[str, int, bool, bool, tuple[int, ...] | None]
"""What rows of `Plan.considered` differ in: schedule, micro-batches, recomputation, offloading, and
the cut points where a user names them."""


class Candidate:
    """An alternative, with its best known cut and bounds on all its cuts.

    Args:
      alternative: all choices but the cut.
      given_cut_points: the cut points that a user names, of its only cut; None if it has all cuts.

    Attributes:
      alternative: all choices but the cut.
      given_cut_points: the cut points of its only cut, or None.
      lower_bound: seconds that none of its cuts can be faster than.
      best: the fastest of its cuts that is known.
      memory_shortage: the shares of IPUs' memory, summed, that the nearest cut lacks, if none fits.
    """

    def __init__(self, alternative: Alternative, given_cut_points: tuple[int, ...] | None = None):
        self.alternative, self.given_cut_points = alternative, given_cut_points
        self.lower_bound = least_seconds_of_any_cut(alternative)
        self.best = FoundCut(None, math.inf, proven=False)
        self.memory_shortage = 0.0
        self._parts: CutParts | None = None
        self._bounds: PathBounds | None = None
        self._local: LocalSearch | None = None

    @property
    def kind(self) -> Kind:
        """The choices in which its row of `Plan.considered` differs from others."""
        a = self.alternative
        return a.name, a.micro_batches, a.stage_costs.recompute, a.offload, self.given_cut_points

    @functools.cached_property
    def smallest_cut(self) -> Cuts:
        """The cut that needs least memory, int64 [1, stages + 1]."""
        if self.given_cut_points is None:
            return StageTables(self.alternative).find_least_excessive_cut()
        return np.array([[0, *self.given_cut_points, len(self.alternative.stage_costs.costs)]])

    @functools.cached_property
    def excess_bytes(self) -> float:
        """The bytes that an IPU lacks with the cut that needs least memory."""
        bytes_of_ipus = self.alternative.peak_bytes(self.smallest_cut)[0]
        return float((bytes_of_ipus - self.alternative.memory).max())

    def find_rough_cut(self, limit: float, is_out_of_time: Callable[[], bool]) -> None:
        """Finds some cut, and a bound on all cuts, in little time.

        Args:
          limit: seconds; no cut is looked for if none can take less.
          is_out_of_time: whether to stop.
        """
        if self.given_cut_points is not None:
            self.best = move_boundaries(self.alternative, self.smallest_cut, moves=0)
            self.lower_bound = self.best.seconds
            return
        self.lower_bound = max(self.lower_bound, least_seconds_by_sums(self.alternative))
        if self.lower_bound >= limit:
            return
        tables = StageTables(self.alternative)
        cut = tables.find_balanced_cut()
        folded = is_folded(self.alternative)
        if cut is None or (folded and not may_fit_folded(self.alternative, EXCESS)):
            self.best, self.lower_bound = FoundCut(None, math.inf, proven=True), math.inf
            return
        graph = StageGraph(tables.possible)
        self._bounds = PathBounds(self.alternative)
        self._bounds.start_with(cut)
        self.best = find_rough_cut(self.alternative, graph, self._bounds, limit, is_out_of_time)
        self.lower_bound = max(self.lower_bound, self._bounds.lower_bound)
        if self.best.cut is None:
            cuts = np.array(self._bounds.cuts)
            self.memory_shortage = float(self.alternative.memory_shortage(cuts).min())

    def find_good_cut(self, limit: float, is_out_of_time: Callable[[], bool]) -> None:
        """Finds a good cut, and a closer bound on all cuts; `find_rough_cut` comes before."""
        if self._bounds is None:
            return
        graph = StageGraph(StageTables(self.alternative).possible)
        found_cut, lower_bound = find_good_cut(
            self.alternative, graph, self._bounds, limit, is_out_of_time
        )
        self.lower_bound = max(self.lower_bound, lower_bound)
        self._keep_faster(found_cut)

    def _keep_faster(self, found_cut: FoundCut) -> None:
        if found_cut.seconds < self.best.seconds:
            self.best = found_cut

    @property
    def unsearched_bound(self) -> float:
        """Seconds that no cut is faster than which is left to search; inf if none is left."""
        if self._parts is None:
            return math.inf if self.given_cut_points is not None else self.lower_bound
        return max(self.lower_bound, self._parts.lower_bound)

    @property
    def cut_points(self) -> tuple[int, ...]:
        """The cut points of the best cut that is known; () if there is none."""
        return self.given_cut_points or (self.best.cut or ())[1:-1]

    @property
    def fullest_bytes(self) -> float:
        """The bytes of the fullest IPU, with the best cut that is known or else the smallest."""
        cut = self.smallest_cut if self.best.cut is None else np.array([self.best.cut])
        return float(self.alternative.peak_bytes(cut).max())

    def may_be_faster(self, limit: float) -> bool:
        """Returns whether cuts are left to search that may take less than some seconds."""
        return self.unsearched_bound < limit * (1 - ROUNDING)

    def search_parts(
        self, limit: float, seconds: float, is_out_of_time: Callable[[], bool]
    ) -> None:
        """Searches the parts of its cuts for one that is faster than a limit and all others.

        Args:
          limit: the seconds that the cut must take less than.
          seconds: how long to search, before something else is worth a try.
          is_out_of_time: whether to stop.
        """
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() > end or is_out_of_time()

        parts = self._start_parts(limit, is_over)
        if parts is None:
            return
        fastest = find_fastest_cut(self.alternative, parts, min(limit, self.best.seconds), is_over)
        if fastest.cut is None:  # nothing is faster than what is known
            fastest = dc.replace(self.best, proven=fastest.proven)
        self.best = fastest

    def _start_parts(self, limit: float, is_out_of_time: Callable[[], bool]) -> CutParts | None:
        """Returns the parts that are left to search; None if no cut has been found to fit."""
        if self._parts is None and self._bounds is not None:
            graph = StageGraph(StageTables(self.alternative).possible)
            self._bounds.tighten(graph, limit, _MOST_ROUNDS, is_out_of_time)
            self._parts = CutParts(self.alternative, self._bounds)
        return self._parts

    def move_segments(self, seconds: float, is_out_of_time: Callable[[], bool]) -> None:
        """Looks for a better cut near the best one, by moving segments from stage to stage.

        Args:
          seconds: how long to look.
          is_out_of_time: whether to stop.
        """
        if self._bounds is None:
            return
        if self._local is None:
            rounded = self._bounds.round_mixture()
            starts = [*self._bounds.cuts, *(() if rounded is None else (rounded,))]
            starts += [] if self.best.cut is None else [np.array(self.best.cut)]
            self._local = LocalSearch(
                self.alternative, np.array(starts), np.array(self._bounds.paths)
            )
        end = time.monotonic() + seconds
        try:
            self._local.improve(lambda: time.monotonic() > end or is_out_of_time())
        finally:  # when the user interrupts it, too
            if self._local.best is not None:
                cut = tuple(map(int, self._local.best))
                self._keep_faster(FoundCut(cut, self._local.seconds, proven=False))
