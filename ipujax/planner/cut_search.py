"""The fastest cut for one alternative: every cut that could be faster is tried."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.bounds import SuffixBounds, bound_seconds
from ipujax.planner.shared_ipu_bounds import SharedIpuBounds
from ipujax.planner.stage_costs import Cuts

_ROUNDING = 1e-12  # what is faster by less is as fast
_MOST_PAIRS = 1 << 24  # pairs of a beginning of cuts and a next boundary that are looked at in all
_CHUNK = 1 << 21  # of them at once
_TOGETHER = 256  # cuts whose schedules are timed at once
_MOST_MOVED = 1 << 16  # tasks that are timed while boundaries are moved
_MOST_TIMED = 1 << 15  # cuts of one alternative whose schedules are timed at all


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


def fits_in_memory(alternative: Alternative, cuts: Cuts) -> np.ndarray:
    """Returns for each cut whether all its IPUs have enough memory, bool [cuts]."""
    slack = 1 + _ROUNDING
    return np.all(alternative.peak_bytes(cuts) <= alternative.memory * slack, axis=1)


def find_good_cut(
    alternative: Alternative, bounds: SuffixBounds, shared: SharedIpuBounds | None
) -> FoundCut:
    """Finds a cut by the bounds of its stages, and moves its boundaries while that helps.

    Args:
      alternative: all choices but the cut.
      bounds: of its stages.
      shared: of what its IPUs force together, where they have several stages.
    """
    if np.isinf(bounds.least_seconds):
        return FoundCut(None, np.inf, proven=True)
    best, seconds = bounds.best_cut(), np.inf
    candidates = np.concatenate([best, bounds.balanced_cut()])
    if shared is not None:
        candidates = np.concatenate([candidates, shared.cuts])
    tasks = 2 * alternative.stages * alternative.timed.micro_batches
    for _ in range(2 + _MOST_MOVED // tasks):
        candidates = candidates[fits_in_memory(alternative, candidates)]
        if not len(candidates):
            break
        times = alternative.seconds(candidates)
        fastest = int(times.argmin())
        if times[fastest] >= seconds * (1 - _ROUNDING):
            break
        best, seconds = candidates[fastest : fastest + 1], float(times[fastest])
        candidates = _move_boundaries(best[0])
    cut = None if np.isinf(seconds) else tuple(map(int, best[0]))
    return FoundCut(cut, seconds, proven=False)


def _move_boundaries(cut: np.ndarray) -> Cuts:
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
    bounds: SuffixBounds,
    shared: SharedIpuBounds | None,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> FoundCut:
    """Finds the fastest cut of an alternative that takes less than some seconds.

    Args:
      alternative: all choices but the cut.
      bounds: of its stages.
      shared: of what its IPUs force together, where they have several stages.
      limit: the seconds that a cut must take less than.
      is_out_of_time: whether to stop, with what is found by then.
    """
    cuts, proven = _list_promising_cuts(alternative, bounds, shared, limit, is_out_of_time)
    cuts = cuts[fits_in_memory(alternative, cuts)]
    least = bound_seconds(alternative, cuts)
    if shared is not None and len(cuts):
        least = np.maximum(least, shared.forces(cuts).max(axis=0))
    order = least.argsort(kind="stable")
    best: tuple[int, ...] | None = None
    for first in range(0, len(order), _TOGETHER):
        chosen = order[first : first + _TOGETHER]
        chosen = chosen[least[chosen] < limit * (1 - _ROUNDING)]
        if not len(chosen):
            break
        if is_out_of_time() or first >= _MOST_TIMED:
            proven = False
            break
        seconds = alternative.seconds(cuts[chosen])
        fastest = int(seconds.argmin())
        if seconds[fastest] < limit * (1 - _ROUNDING):
            limit, best = float(seconds[fastest]), tuple(map(int, cuts[chosen[fastest]]))
    return FoundCut(best, limit, proven)


@dc.dataclass(frozen=True, eq=False)
class _Beginnings:
    """The first stages of many cuts.

    Attributes:
      positions: int64 [beginnings, stages + 1]: where stages begin, the next one included.
      slowest: float64 [beginnings]: the seconds that the slowest of these stages forces.
      delays: float64 [beginnings]: how long something travels through them.
      mean: float64 [beginnings]: what they add to the mean of what IPUs force.
    """

    positions: np.ndarray
    slowest: np.ndarray
    delays: np.ndarray
    mean: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, chosen: np.ndarray | slice) -> _Beginnings:
        """Returns some of them."""
        return _Beginnings(
            self.positions[chosen], self.slowest[chosen], self.delays[chosen], self.mean[chosen]
        )


def _list_promising_cuts(
    alternative: Alternative,
    bounds: SuffixBounds,
    shared: SharedIpuBounds | None,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> tuple[Cuts, bool]:
    """Lists the cuts that bounds allow to take less than a limit, and whether these are all."""
    segments, complete = len(alternative.stage_costs.costs), True
    most_parts = max(1, _MOST_PAIRS // (segments * alternative.stages))
    constant = 0.0 if shared is None else shared.constant
    none = np.zeros(1)
    beginnings = _Beginnings(np.zeros((1, 1), int), none - np.inf, none, none + constant)
    for stage in range(alternative.stages):
        extend = _StageExtension(alternative, bounds, shared, stage)
        parts: list[_Beginnings] = []
        rows = max(1, _CHUNK // (segments + 1))
        for first in range(0, len(beginnings), rows):
            if is_out_of_time():
                complete = False
                break
            parts.append(extend(beginnings.select(slice(first, first + rows)), limit))
        if not parts:
            return np.zeros((0, alternative.stages + 1), int), complete
        beginnings = _Beginnings(
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.slowest for part in parts]),
            np.concatenate([part.delays for part in parts]),
            np.concatenate([part.mean for part in parts]),
        )
        if len(beginnings) > most_parts:
            complete = False
            # Some by each bound: what is best by one alone is seldom best in the end.
            rankings = extend.list_bounds(beginnings)
            kept = [
                ranking.argpartition(most_parts // 2)[: most_parts // 2] for ranking in rankings
            ]
            beginnings = beginnings.select(np.unique(np.concatenate(kept)))
    return beginnings.positions, complete


class _StageExtension:
    """Adds a stage to beginnings of cuts, wherever it may end."""

    def __init__(
        self,
        alternative: Alternative,
        bounds: SuffixBounds,
        shared: SharedIpuBounds | None,
        stage: int,
    ):
        costs = alternative.stage_costs
        self._table, self._rest = bounds.fitting_seconds(stage), bounds.seconds[stage + 1]
        self._boundary_seconds = costs.boundary_seconds
        # The table counts the shortest delay for each boundary before, as often as it is passed.
        self._passes = 1 if costs.splits_backward else 2
        self._counted_delays = stage * bounds.least_delay
        nothing = np.zeros_like(self._table)
        self._shares = nothing if shared is None else shared.stage_share(stage)
        self._rest_of_mean = nothing[0] - np.inf if shared is None else shared.rest[stage + 1]

    def __call__(self, beginnings: _Beginnings, limit: float) -> _Beginnings:
        """Returns all beginnings with one more stage that may take less than a limit."""
        starts = beginnings.positions[:, -1]
        extra = self._passes * (beginnings.delays - self._counted_delays)
        slowest = np.maximum(beginnings.slowest[:, None], self._table[starts] + extra[:, None])
        mean = beginnings.mean[:, None] + self._shares[starts]
        least = np.maximum(np.maximum(slowest, self._rest), mean + self._rest_of_mean)
        row, end = np.nonzero(least < limit * (1 - _ROUNDING))
        return _Beginnings(
            np.concatenate([beginnings.positions[row], end[:, None]], axis=1),
            slowest[row, end],
            beginnings.delays[row] + self._boundary_seconds[end],
            mean[row, end],
        )

    def list_bounds(self, extended: _Beginnings) -> tuple[np.ndarray, np.ndarray]:
        """Returns bounds on all cuts that begin like these: by stages, and by the mean of IPUs."""
        end = extended.positions[:, -1]
        by_stages = np.maximum(extended.slowest, self._rest[end])
        return by_stages, extended.mean + self._rest_of_mean[end]
