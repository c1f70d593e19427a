"""An alternative of a search, and what is known of its cuts."""

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

_ROUNDS_OF_PARTS = 80  # of tightening the bound on all cuts, before they are divided

Kind = tuple[str, int, bool, bool, tuple[int, ...] | None]
"""What a row of `considered` tells apart: schedule, micro-batches, recomputation, offloading, and
whether it is a given cut."""


class Candidate:
    """An alternative, with what is known of its cuts.

    Args:
      alternative: the alternative.
      given: the cut points of its only cut; None if it has all cuts.

    Attributes:
      alternative: the alternative.
      given: the cut points of its only cut.
      least: seconds that none of its cuts can be faster than.
      found: the best of its cuts that is known.
      lacking: the shares of IPUs' memory, summed, that the nearest cut lacks, if none fits.
    """

    def __init__(self, alternative: Alternative, given: tuple[int, ...] | None = None):
        self.alternative, self.given = alternative, given
        self.least = least_seconds_of_any_cut(alternative)
        self.found = FoundCut(None, math.inf, proven=False)
        self.lacking = 0.0
        self._parts: CutParts | None = None
        self._bounds: PathBounds | None = None
        self._local: LocalSearch | None = None

    @property
    def kind(self) -> Kind:
        """The choices that its row of `considered` tells apart."""
        a = self.alternative
        return a.name, a.micro_batches, a.stage_costs.recompute, a.offload, self.given

    @functools.cached_property
    def smallest_cut(self) -> Cuts:
        """The cut that needs least memory, int64 [1, stages + 1]."""
        if self.given is None:
            return StageTables(self.alternative).find_least_excessive_cut()
        return np.array([[0, *self.given, len(self.alternative.stage_costs.costs)]])

    @functools.cached_property
    def excess_bytes(self) -> float:
        """The bytes that an IPU lacks with the cut that needs least."""
        needed = self.alternative.peak_bytes(self.smallest_cut)[0]
        return float((needed - self.alternative.memory).max())

    def find_rough_cut(self, limit: float, is_out_of_time: Callable[[], bool]) -> None:
        """Finds some cut, and a bound on all that takes little time to find.

        Args:
          limit: seconds that a cut should take less than, to be looked for.
          is_out_of_time: whether to stop.
        """
        if self.given is not None:
            self.found = move_boundaries(self.alternative, self.smallest_cut, moves=0)
            self.least = self.found.seconds
            return
        self.least = max(self.least, least_seconds_by_sums(self.alternative))
        if self.least >= limit:
            return
        tables = StageTables(self.alternative)
        cut = tables.find_balanced_cut()
        folded = is_folded(self.alternative)
        if cut is None or (folded and not may_fit_folded(self.alternative, EXCESS)):
            self.found, self.least = FoundCut(None, math.inf, proven=True), math.inf
            return
        graph = StageGraph(tables.possible)
        self._bounds = PathBounds(self.alternative)
        self._bounds.start_with(cut)
        self.found = find_rough_cut(self.alternative, graph, self._bounds, limit, is_out_of_time)
        self.least = max(self.least, self._bounds.seconds)
        if self.found.cut is None:
            cuts = np.array(self._bounds.cuts)
            self.lacking = float(self.alternative.lacking_shares(cuts).min())

    def find_good_cut(self, limit: float, is_out_of_time: Callable[[], bool]) -> None:
        """Finds a cut that is good, and a closer bound on all: see `find_rough_cut`."""
        if self._bounds is None:
            return
        graph = StageGraph(StageTables(self.alternative).possible)
        found_cut, least = find_good_cut(
            self.alternative, graph, self._bounds, limit, is_out_of_time
        )
        self.least = max(self.least, least)
        self._keep_faster(found_cut)

    def _keep_faster(self, found_cut: FoundCut) -> None:
        if found_cut.seconds < self.found.seconds:
            self.found = found_cut

    @property
    def least_of_rest(self) -> float:
        """Seconds that no cut which is left to search is faster than; inf if none is left."""
        if self._parts is None:
            return math.inf if self.given is not None else self.least
        return max(self.least, self._parts.least)

    @property
    def cut_points(self) -> tuple[int, ...]:
        """The cut points of its best cut that is known; () if there is none."""
        return self.given or (self.found.cut or ())[1:-1]

    @property
    def fullest_bytes(self) -> float:
        """The bytes of the fullest IPU with the best cut that is known, or with the smallest."""
        cut = self.smallest_cut if self.found.cut is None else np.array([self.found.cut])
        return float(self.alternative.peak_bytes(cut).max())

    def may_be_faster(self, limit: float) -> bool:
        """Returns whether cuts are left to search that may take less than some seconds."""
        return self.least_of_rest < limit * (1 - ROUNDING)

    def search_parts(
        self, limit: float, seconds: float, is_out_of_time: Callable[[], bool]
    ) -> None:
        """Looks for the cut that is faster than a limit and all others, by bounds.

        Args:
          limit: the seconds that it must take less than.
          seconds: how long to search, before something else is worth a try.
          is_out_of_time: whether to stop.
        """
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() > end or is_out_of_time()

        parts = self._start_parts(limit, is_over)
        if parts is None:
            return
        found = find_fastest_cut(self.alternative, parts, min(limit, self.found.seconds), is_over)
        if found.cut is None:  # nothing is faster than what is known
            found = dc.replace(self.found, proven=found.proven)
        self.found = found

    def _start_parts(self, limit: float, is_out_of_time: Callable[[], bool]) -> CutParts | None:
        """Returns the parts that are left to search; None if no cut has been found to fit."""
        if self._parts is None and self._bounds is not None:
            graph = StageGraph(StageTables(self.alternative).possible)
            self._bounds.tighten(graph, limit, _ROUNDS_OF_PARTS, is_out_of_time)
            self._parts = CutParts(self.alternative, self._bounds)
        return self._parts

    def move_segments(self, seconds: float, is_out_of_time: Callable[[], bool]) -> None:
        """Looks for a better cut near the best, where bounds leave many.

        Args:
          seconds: how long to look.
          is_out_of_time: whether to stop.
        """
        if self._bounds is None:
            return
        if self._local is None:
            rounded = self._bounds.round_mixture()
            starts = [*self._bounds.cuts, *(() if rounded is None else (rounded,))]
            starts += [] if self.found.cut is None else [np.array(self.found.cut)]
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
