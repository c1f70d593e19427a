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
_POWER = 8  # to which paths are raised, for a mean of them
_SHARE_OF_PATHS = 0.1  # of that mean
_MOST_PATHS = 96  # that are known
_PRICES = (0.3, 10.0)  # of an IPU's memory that is lacking, in makespans


class LocalSearch:
    """A search from cut to cut, by moves of segments from a stage to another.

    Cuts that do not fit may be passed through: what they lack costs seconds, the more of them the
    longer no cut has been found that fits, and the fewer the longer none has that does not. Where
    no move helps, some at random lead away.

    Args:
      alternative: all choices but the cut.
      starts: the cuts to begin with, at least one.
      paths: float64 [paths, stages, COLUMNS]: paths through its schedule. Of equally fast cuts, the
        better one has all of them short, not the longest alone.

    Attributes:
      best: the fastest cut that fits, int64 [stages + 1]; None if none has been found.
      seconds: those of an update with it; inf without.
    """

    def __init__(self, alternative: Alternative, starts: Cuts, paths: np.ndarray):
        self._alternative, self._paths = alternative, paths
        self._random = np.random.default_rng(0)
        self._moves = _list_moves(alternative.stages)
        self._most_cuts = max(1, _MOST_TASKS // len(alternative.timed.task_times))
        self._price = 1.0
        self.best: np.ndarray | None = None
        self.seconds = math.inf
        self._home = self._current = starts[int(self._evaluate(starts).argmin())]

    def improve(self, is_out_of_time: Callable[[], bool]) -> None:
        """Moves on until there is no time left."""
        while len(self._moves) and not is_out_of_time():
            self._add_longest_path(self._current)
            following = self._find_better()
            if following is None:
                self._jump()
            else:
                self._current = following

    def _add_longest_path(self, cut: np.ndarray) -> None:
        """Adds the longest path with a cut to those that are known, of which the oldest is left.

        The path through each IPU stays.
        """
        row = self._alternative.time_rows(cut[None])[0]
        path = self._alternative.find_longest_path(row)
        first = self._alternative.num_ipus if len(self._paths) >= _MOST_PATHS else 0
        kept = np.delete(self._paths, first, axis=0) if first else self._paths
        self._paths = np.concatenate([kept, path[None]])

    def _find_better(self) -> np.ndarray | None:
        """Returns the best cut that is one or two moves away; None if none is better."""
        most = min(len(self._moves), _MOST_MOVES, self._most_cuts)
        moves = self._random.choice(self._moves, most, replace=False)
        moves = moves[_are_cuts(self._current + moves)]
        singles = np.concatenate([self._current[None], self._current + moves])
        values = self._evaluate(singles, is_first_best=True)
        chosen = moves[values[1:].argsort(kind="stable")[:_MOST_PAIRED]]
        first, second = np.triu_indices(len(chosen), 1)
        pairs = self._current + chosen[first] + chosen[second]
        pairs = pairs[_are_cuts(pairs)][: self._most_cuts]
        pairs = np.concatenate([self._current[None], pairs])
        cuts = np.concatenate([singles, pairs])
        values = np.concatenate([values, self._evaluate(pairs, is_first_best=True)])
        least = int(values.argmin())
        return cuts[least] if values[least] < values[0] * (1 - ROUNDING) else None

    def _jump(self) -> None:
        """Goes elsewhere from the better one of this cut and the last from which it did so."""
        both = np.array([self._home, self._current])
        self._home = both[int(self._evaluate(both).argmin())]
        fits = bool(self._alternative.fits_in_memory(self._current[None])[0])
        self._price = float(np.clip(self._price * (0.8 if fits else 1.5), *_PRICES))
        self._current = self._home
        for move in self._random.choice(self._moves, _JUMP):
            if _are_cuts((self._current + move)[None])[0]:
                self._current = self._current + move

    def _evaluate(self, cuts: Cuts, *, is_first_best: bool = False) -> np.ndarray:
        """Returns how bad cuts are, in seconds; and remembers the fastest that fits.

        That is the seconds, more for what they lack of memory, and a share of a mean of paths to
        which the longest ones give the most. The longest known path stands for the seconds, which
        are no less, until a cut fits; and of cuts that are worse than the first even so, where that
        is the best.
        """
        lacking = self._alternative.lacking_shares(cuts)
        prices, fits = 1 + self._price * lacking, lacking == 0
        lengths = multiply_paths(self._paths, self._alternative.time_rows(cuts))
        longest = np.maximum(lengths.max(axis=0), np.finfo(float).tiny)
        mean = longest * ((lengths / longest) ** _POWER).mean(axis=0) ** (1 / _POWER)
        values = longest * prices + _SHARE_OF_PATHS * mean
        if self.best is None and not fits.any():
            return values
        most = values[0] * (1 + ROUNDING) if is_first_best else math.inf
        timed = np.flatnonzero(values <= most)
        seconds = self._alternative.seconds(cuts[timed])
        values[timed] += (seconds - longest[timed]) * prices[timed]
        fitting = np.where(fits[timed], seconds, np.inf)
        if fitting.min() < self.seconds * (1 - ROUNDING):
            self.best, self.seconds = cuts[timed[fitting.argmin()]], float(fitting.min())
        return values


def _are_cuts(rows: np.ndarray) -> np.ndarray:
    """Returns for each row of boundaries whether all stages have segments, bool [rows]."""
    return np.all(np.diff(rows, axis=1) > 0, axis=1)


def _list_moves(stages: int) -> np.ndarray:
    """Lists what boundaries change by, int64 [moves, stages + 1].

    A segment goes from a stage to any other one, through all between them; or up to four go past
    three boundaries at the most.
    """
    moves: list[np.ndarray] = []
    for first, last in itertools.combinations_with_replacement(range(1, stages), 2):
        for step in (-4, -2, -1, 1, 2, 4) if last - first < 3 else (-1, 1):
            move = np.zeros(stages + 1, int)
            move[first : last + 1] = step
            moves.append(move)
    return np.array(moves, int).reshape(-1, stages + 1)
