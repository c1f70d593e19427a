"""Good cuts by moving segments from stage to stage, where bounds leave too many cuts to try all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import ROUNDING, Alternative
from ipujax.planner.path_bounds import multiply_paths
from ipujax.planner.stage_costs import Cuts

_MOST_MOVES = 1 << 10  # from one cut that are timed at once
_MOST_TASKS = 1 << 24  # of all cuts that are timed at once
_MOST_PAIRED = 40  # moves, the best ones, of which all pairs are tried too
_JUMP = 4  # moves at random, where none helps
_POWER = 8  # of the power mean of the paths' seconds
_SHARE_OF_MEAN = 0.1  # of that mean, which is added to the seconds of a cut
_MOST_PATHS = 96  # that the search remembers
_PRICES = (0.3, 10.0)  # the least and the largest price of lacking memory, in makespans


class LocalSearch:
    """A search from cut to cut, by moves of segments from a stage to another.

    It may pass through cuts that do not fit: the memory that they lack has a price in seconds.
    Where no move helps, the search jumps elsewhere by some moves at random. The price rises with a
    jump from a cut that does not fit, and falls with a jump from one that does.

    Args:
      alternative: all choices but the cut.
      starts: the cuts to begin with, at least one.
      paths: float64 [paths, stages, COLUMNS]: paths through its schedule. Of equally fast cuts, the
        better one has all of them short, not the longest alone.

    Attributes:
      best: the fastest cut that fits, int64 [stages + 1]; None if none has been found.
      seconds: the seconds of an update with the best cut; inf without one.
    """

    def __init__(self, alternative: Alternative, starts: Cuts, paths: np.ndarray):
        self._alternative, self._paths = alternative, paths
        self._random = np.random.default_rng(0)
        self._moves = _list_moves(alternative.stages)
        self._most_cuts = max(1, _MOST_TASKS // len(alternative.timed.task_times))
        self._memory_price = 1.0
        self.best: np.ndarray | None = None
        self.seconds = math.inf
        self._jump_origin = self._current = starts[int(self._evaluate(starts).argmin())]

    def improve(self, is_out_of_time: Callable[[], bool]) -> None:
        """Goes from cut to better cut, and jumps where none is better, until time is over."""
        while len(self._moves) and not is_out_of_time():
            self._add_longest_path(self._current)
            better_cut = self._find_better_cut()
            if better_cut is None:
                self._jump()
            else:
                self._current = better_cut

    def _add_longest_path(self, cut: np.ndarray) -> None:
        """Adds the path that is longest with a cut, and drops the oldest if there are too many.

        The path through each IPU, which comes first, stays.
        """
        row = self._alternative.time_rows(cut[None])[0]
        path = self._alternative.find_longest_path(row)
        remaining_paths, oldest = self._paths, self._alternative.num_ipus
        if len(remaining_paths) >= max(_MOST_PATHS, oldest + 1):
            remaining_paths = np.delete(remaining_paths, oldest, axis=0)
        self._paths = np.concatenate([remaining_paths, path[None]])

    def _find_better_cut(self) -> np.ndarray | None:
        """Returns the best cut that is one or two moves away; None if none is better."""
        most = min(len(self._moves), _MOST_MOVES, self._most_cuts)
        moves = self._random.choice(self._moves, most, replace=False)
        moves = moves[_are_cuts(self._current + moves)]
        singles = np.concatenate([self._current[None], self._current + moves])
        values = self._evaluate(singles, is_first_best=True)
        best_moves = moves[values[1:].argsort(kind="stable")[:_MOST_PAIRED]]
        first, second = np.triu_indices(len(best_moves), 1)
        pairs = self._current + best_moves[first] + best_moves[second]
        pairs = pairs[_are_cuts(pairs)][: self._most_cuts]
        pairs = np.concatenate([self._current[None], pairs])
        cuts = np.concatenate([singles, pairs])
        values = np.concatenate([values, self._evaluate(pairs, is_first_best=True)])
        best = int(values.argmin())
        return cuts[best] if values[best] < values[0] * (1 - ROUNDING) else None

    def _jump(self) -> None:
        """Jumps elsewhere from this cut, or from the one of the last jump if that is better."""
        origins = np.array([self._jump_origin, self._current])
        self._jump_origin = origins[int(self._evaluate(origins).argmin())]
        fits = bool(self._alternative.fits_in_memory(self._current[None])[0])
        self._memory_price = float(np.clip(self._memory_price * (0.8 if fits else 1.5), *_PRICES))
        self._current = self._jump_origin
        for move in self._random.choice(self._moves, _JUMP):
            if _are_cuts((self._current + move)[None])[0]:
                self._current = self._current + move

    def _evaluate(self, cuts: Cuts, *, is_first_best: bool = False) -> np.ndarray:
        """Returns how bad cuts are, in seconds; and remembers the fastest that fits.

        A cut's value is its seconds, times the price of the memory that it lacks, and a share of a
        power mean of its paths. Until a cut fits, the longest known path stands for the seconds,
        which are no less. So it does for cuts that even by it are worse than the first, where
        `is_first_best` says that only better ones matter.
        """
        lacking = self._alternative.memory_shortage(cuts)
        penalties, fits = 1 + self._memory_price * lacking, lacking == 0
        lengths = multiply_paths(self._paths, self._alternative.time_rows(cuts))
        longest = np.maximum(lengths.max(axis=0), np.finfo(float).tiny)
        mean = longest * ((lengths / longest) ** _POWER).mean(axis=0) ** (1 / _POWER)
        values = longest * penalties + _SHARE_OF_MEAN * mean
        if self.best is None and not fits.any():
            return values
        limit = values[0] * (1 + ROUNDING) if is_first_best else math.inf
        timed = np.flatnonzero(values <= limit)
        seconds = self._alternative.seconds(cuts[timed])
        values[timed] += (seconds - longest[timed]) * penalties[timed]
        fitting = np.where(fits[timed], seconds, np.inf)
        if fitting.min() < self.seconds * (1 - ROUNDING):
            self.best, self.seconds = cuts[timed[fitting.argmin()]], float(fitting.min())
        return values


def _are_cuts(rows: np.ndarray) -> np.ndarray:
    """Returns for each row of boundaries whether all stages have segments, bool [rows]."""
    return np.all(np.diff(rows, axis=1) > 0, axis=1)


def _list_moves(stages: int) -> np.ndarray:
    """Lists the moves, as what they add to the boundaries of a cut: int64 [moves, stages + 1].

    A segment goes from a stage to any other one, through all between them; or up to four segments
    go past three boundaries at the most.
    """
    moves: list[np.ndarray] = []
    for first, last in itertools.combinations_with_replacement(range(1, stages), 2):
        for step in (-4, -2, -1, 1, 2, 4) if last - first < 3 else (-1, 1):
            move = np.zeros(stages + 1, int)
            move[first : last + 1] = step
            moves.append(move)
    return np.array(moves, int).reshape(-1, stages + 1)
