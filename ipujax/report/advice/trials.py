"""Applies changes, alone and together, and models the program again, for as long as there is time.

What costs a user least comes first. The first changes are added up until the program fits; what
time is left goes to each change alone.
"""

from __future__ import annotations

import dataclasses as dc
import time
from collections.abc import Callable, Sequence

from ipujax.report.advice.changes import Case, Change
from ipujax.report.advice.findings import need_bytes
from ipujax.system.log import get_logger
from lowering import machine

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 40.0
_TIMES = 5.0  # as long as the model of the program itself took
_SLOW = 1.0  # seconds; what takes longer is logged
_HELPS = 0.95  # of what is too much is left at most, after a change that helps


@dc.dataclass(frozen=True, slots=True)
class Trial:
    """Changes, and what the model says after them."""

    changes: tuple[Change, ...]
    profile: machine.Profile


@dc.dataclass(frozen=True, slots=True)
class Trials:
    """What was tried.

    Attributes:
      done: what helps, in the order in which it was tried.
      untried: changes for which, alone or with others, there was no time.
    """

    done: tuple[Trial, ...]
    untried: tuple[Change, ...]


class Budget:
    """The time that trials may take, from the first one on, which may take any.

    Args:
      one: seconds that the model of the program itself took.
      clock: in seconds.
    """

    def __init__(self, one: float, clock: Callable[[], float] = time.monotonic):
        self.one, self.clock = one, clock
        self.seconds = min(max(_TIMES * one, _LEAST_SECONDS), _MOST_SECONDS)
        self.end: float | None = None

    def allows_another(self) -> bool:
        """Whether a trial that begins now ends in time, if it takes as long as the longest yet."""
        now = self.clock()
        if self.end is None:
            self.end = now + self.seconds
            return True
        return now + self.one <= self.end

    def spend(self, work: Callable[[], machine.Profile | None]) -> machine.Profile | None:
        """Does some work, to know how long the next will take."""
        start = self.clock()
        result = work()
        self.one = max(self.one, self.clock() - start)
        return result


def trials(case: Case, profile: machine.Profile, found: Sequence[Change], budget: Budget) -> Trials:
    """Tries changes.

    Args:
      case: the program as it is.
      profile: what the model says of it.
      found: changes, those to try first at the beginning.
      budget: how long that may take.
    """
    return _Search(case, profile, found, budget).run()


class _Search:
    """One search, and how far it is."""

    def __init__(
        self, case: Case, profile: machine.Profile, found: Sequence[Change], budget: Budget
    ):
        self.case, self.profile, self.found, self.budget = case, profile, found, budget
        self.done: list[Trial] = []
        self.tried: set[tuple[int, ...]] = set()

    def run(self) -> Trials:
        """Adds changes up until the program fits, then tries each alone."""
        together: tuple[Change, ...] = ()
        now = self.profile
        for change in self.found:
            several = (*(c for c in together if not c.excludes(change)), change)
            trial = self.model(several, now)
            if trial is None or not _helps(trial.profile, now):
                continue
            together, now = several, trial.profile
            self.done.append(trial)
            if trial.profile.memory.fits:
                break
        alone = [trial for change in self.found if (trial := self.model((change,), self.profile))]
        self.done += [trial for trial in alone if _helps(trial.profile, self.profile)]
        known = {number for key in self.tried for number in key}
        untried = [change for change in self.found if id(change) not in known]
        return Trials(tuple(self.done), tuple(untried))

    def model(self, several: tuple[Change, ...], now: machine.Profile) -> Trial | None:
        """The program after some changes, the last one of them new to `now`.

        None for want of time, if it was modelled before, or if there is no hope.
        """
        key = tuple(sorted(map(id, several)))
        if _is_hopeless(several[-1], now):
            self.tried.add(key)
            return None
        if key in self.tried or not self.budget.allows_another():
            return None
        self.tried.add(key)
        if self.budget.one > _SLOW:
            words = " + ".join(change.short for change in several)
            get_logger().info(f"`{self.profile.name}` does not fit; modelling it with {words}")
        changed = self.case
        for change in sorted(several, key=lambda change: not change.first):
            changed = change.apply(changed)
        profile = self.budget.spend(changed.profile)
        return None if profile is None else Trial(several, profile)


def _helps(after: machine.Profile, before: machine.Profile) -> bool:
    """Whether less lacks on all IPUs together, and the fullest tile is no fuller."""
    lacked, lacks = (sum(need_bytes(profile.memory)) for profile in (before, after))
    fuller = after.memory.tile_peak_bytes.max() > before.memory.tile_peak_bytes.max()
    return lacks <= _HELPS * lacked and not fuller


def _is_hopeless(change: Change, now: machine.Profile) -> bool:
    """Whether all IPUs hold more than fits, however it is shared out to as many as `change` has."""
    if change.ipus is None:
        return False
    held = int(now.memory.tile_peak_bytes.max(axis=1).sum())
    return held > change.ipus * now.memory.limit
