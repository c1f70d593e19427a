"""The fastest cut for one alternative: every cut that could be faster is tried."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.bounds import SuffixBounds, bound_seconds
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


def find_good_cut(alternative: Alternative, bounds: SuffixBounds) -> FoundCut:
    """Finds a cut by the bounds of its stages, and moves its boundaries while that helps."""
    if np.isinf(bounds.least_seconds):
        return FoundCut(None, np.inf, proven=True)
    best, seconds = bounds.best_cut(), np.inf
    candidates = best
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
    """Returns all cuts with one boundary, or two neighbouring ones, a segment elsewhere."""
    moves: list[np.ndarray] = []
    inner = range(1, len(cut) - 1)
    for first in inner:
        for last in (first, first + 1):
            for step in (-1, 1):
                moved = cut.copy()
                moved[first : min(last, len(cut) - 2) + 1] += step
                moves.append(moved)
    cuts = np.array(moves, int).reshape(-1, len(cut))
    return cuts[(np.diff(cuts, axis=1) > 0).all(axis=1)]


def find_fastest_cut(
    alternative: Alternative,
    bounds: SuffixBounds,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> FoundCut:
    """Finds the fastest cut of an alternative that takes less than some seconds.

    Args:
      alternative: all choices but the cut.
      bounds: of its stages.
      limit: the seconds that a cut must take less than.
      is_out_of_time: whether to stop, with what is found by then.
    """
    cuts, proven = _list_promising_cuts(alternative, bounds, limit, is_out_of_time)
    cuts = cuts[fits_in_memory(alternative, cuts)]
    least = bound_seconds(alternative, cuts)
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


def _list_promising_cuts(
    alternative: Alternative,
    bounds: SuffixBounds,
    limit: float,
    is_out_of_time: Callable[[], bool],
) -> tuple[Cuts, bool]:
    """Lists the cuts whose slowest IPU takes less than a limit, and whether these are all."""
    segments, complete = len(alternative.stage_costs.costs), True
    most_parts = max(1, _MOST_PAIRS // (segments * alternative.stages))
    beginnings, slowest = np.zeros((1, 1), int), np.array([-np.inf])
    delays = np.zeros(1)
    boundary_seconds = alternative.stage_costs.boundary_seconds
    passes = 1 if alternative.stage_costs.splits_backward else 2  # of each boundary before a stage
    for stage in range(alternative.stages):
        table = bounds.fitting_seconds(stage)
        rest = bounds.seconds[stage + 1]
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        rows = max(1, _CHUNK // (segments + 1))
        for first in range(0, len(beginnings), rows):
            if is_out_of_time():
                complete = False
                break
            here = slice(first, first + rows)
            starts = beginnings[here, -1]
            # The table counts the shortest delay for each boundary before.
            extra = passes * (delays[here] - stage * bounds.least_delay)
            reached = np.maximum(slowest[here, None], table[starts] + extra[:, None])
            least = np.maximum(reached, rest[None, :])
            row, end = np.nonzero(least < limit * (1 - _ROUNDING))
            extended = np.concatenate([beginnings[here][row], end[:, None]], axis=1)
            parts.append((extended, reached[row, end], delays[here][row] + boundary_seconds[end]))
        if not parts:
            return np.zeros((0, alternative.stages + 1), int), complete
        beginnings, slowest, delays = (
            np.concatenate(arrays) for arrays in zip(*parts, strict=True)
        )
        if len(beginnings) > most_parts:
            complete = False
            least = np.maximum(slowest, rest[beginnings[:, -1]])
            kept = least.argpartition(most_parts)[:most_parts]
            beginnings, slowest, delays = beginnings[kept], slowest[kept], delays[kept]
    return beginnings, complete
