"""Applies changes, alone and together, and models the program again, as often as is worth it.

What costs a user least comes first. The first changes are added up until the program fits; the
models that are left go to each change alone, unless they take long.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

from ipujax.report.advice.changes import Case, Change
from ipujax.report.advice.findings import need_bytes
from ipujax.system.log import get_logger
from lowering import machine

_MOST_STEPS = 120_000  # of all models together
_LEAST_MODELS, _MOST_MODELS = 6, 12
_LONG = 5_000  # steps; models of more are logged, and end with the first that is enough
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
      untried: changes that, alone or with others, the budget did not allow.
      models: how many were made.
    """

    done: tuple[Trial, ...]
    untried: tuple[Change, ...]
    models: int


def budget(profile: machine.Profile) -> int:
    """How many models of a program may be made: fewer of longer ones, on all machines alike."""
    return min(max(_MOST_STEPS // max(_steps(profile), 1), _LEAST_MODELS), _MOST_MODELS)


def _steps(profile: machine.Profile) -> int:
    return sum(len(liveness.names) for liveness in profile.liveness)


def trials(
    case: Case,
    profile: machine.Profile,
    found: Sequence[Change],
    further: Callable[[machine.Profile], Sequence[Change]] = lambda _: (),
) -> Trials:
    """Tries changes.

    Args:
      case: the program as it is.
      profile: what the model says of it.
      found: changes, those to try first at the beginning.
      further: those that depend on what a profile says, such as that after other changes.
    """
    return _Search(case, profile, found, further).run()


class _Search:
    """One search, and how far it is."""

    def __init__(
        self,
        case: Case,
        profile: machine.Profile,
        found: Sequence[Change],
        further: Callable[[machine.Profile], Sequence[Change]],
    ):
        self.case, self.profile, self.further = case, profile, further
        self.found = list(found)
        self.left, self.models = budget(profile), 0
        self.is_long = _steps(profile) > _LONG
        self.done: list[Trial] = []
        self.tried: set[tuple[int, ...]] = set()

    def run(self) -> Trials:
        """Adds changes up until the program fits, then tries each alone if that is quick."""
        self.add_up()
        alone = [trial for change in self.found if (trial := self.model((change,), self.profile))]
        self.done += [trial for trial in alone if _helps(trial.profile, self.profile)]
        known = {number for key in self.tried for number in key}
        untried = [change for change in self.found if id(change) not in known]
        return Trials(tuple(self.done), tuple(untried), self.models)

    def add_up(self) -> None:
        """Keeps each change that helps beside those before it."""
        together: tuple[Change, ...] = ()
        now = self.profile
        waiting = self.asked(now, self.found)
        while waiting and not now.memory.fits:
            change = waiting.pop(0)
            several = (*(c for c in together if not c.excludes(change)), change)
            trial = self.model(several, now)
            if trial is None or not _helps(trial.profile, now):
                continue
            together, now = several, trial.profile
            self.done.append(trial)
            waiting = self.asked(now, waiting)

    def asked(self, now: machine.Profile, waiting: Sequence[Change]) -> list[Change]:
        """What is still to be tried, with what a profile adds to that at the end."""
        known = {(change.rule, change.text) for change in self.found}
        new = [c for c in self.further(now) if (c.rule, c.text) not in known]
        self.found += new
        return [*waiting, *new]

    def model(self, several: tuple[Change, ...], now: machine.Profile) -> Trial | None:
        """The program after some changes, the last one of them new to `now`.

        None if the budget is spent, if it was modelled before, or if there is no hope.
        """
        key = tuple(sorted(map(id, several)))
        if _is_hopeless(several[-1], now):
            self.tried.add(key)
            return None
        if key in self.tried or not self.left:
            return None
        self.left, self.models = self.left - 1, self.models + 1
        self.tried.add(key)
        if self.is_long:
            words = " + ".join(change.short for change in several)
            get_logger().info(f"`{self.profile.name}` does not fit; modelling it with {words}")
        changed = self.case
        for change in sorted(several, key=lambda change: not change.first):
            changed = change.apply(changed)
        profile = changed.profile()
        if profile is not None and profile.memory.fits and self.is_long:
            self.left = 0
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
