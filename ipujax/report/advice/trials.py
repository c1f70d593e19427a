"""Applies changes, alone and together, and models the program again, as often as is worth it.

What costs a user least comes first. The first changes are added up until the program fits, each
with as much effect as it takes; the models that are left go to each change alone, unless they take
long.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

from ipujax.report.advice.change import Case, Change
from ipujax.report.advice.findings import need_bytes
from ipujax.system.log import get_logger
from lowering import machine

_MOST_STEPS = 120_000  # of all models together
_LEAST_MODELS, _MOST_MODELS = 6, 16
_LONG = 5_000  # steps; models of more are logged, and end with the first that is enough
_MOST_IDLE = 2  # models of one change that does nothing, with more effect each time
_HELPS = 0.95  # of what is too much is left at most, after a change that helps


@dc.dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Changes, and what the model says after them."""

    changes: tuple[Change, ...]
    profile: machine.Profile

    def costs_no_more(self, other: Trial) -> bool:
        """Returns whether the other's changes cost precision and IPUs, too, if these do."""
        theirs = {change.rule: change.ipus or 0 for change in other.changes if change.is_late}
        own = [change for change in self.changes if change.is_late]
        return all(c.rule in theirs and (c.ipus or 0) <= theirs[c.rule] for c in own)


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
        self.tried: dict[tuple[int, ...], Trial | None] = {}
        self.stronger: dict[int, tuple[Change, Change | None]] = {}
        self.lines: set[tuple[str, str]] = set()  # of changes that profiles asked for

    def run(self) -> Trials:
        """Adds changes up until the program fits, then tries each alone if that is quick."""
        early = [change for change in self.found if not change.is_late]
        together, now = self.add_up(early, (), self.profile)
        if not now.memory.fits:
            self.add_late(together, now)
        for change in list(self.found):
            self.try_alone(change)
        known = {number for key in self.tried for number in key}
        untried = [change for change in self.found if id(change) not in known]
        return Trials(tuple(self.done), tuple(untried), self.models)

    def add_late(self, together: tuple[Change, ...], now: machine.Profile) -> None:
        """Adds each change that costs more than time to others; all of them, if one does not do."""
        late = [change for change in self.found if change.is_late]
        fits = [self.add_up([change], together, now)[1].memory.fits for change in late]
        if len(late) > 1 and not any(fits):
            self.add_up(late, together, now)

    def try_alone(self, change: Change) -> None:
        """Tries a change by itself, and with more effect unless it did nothing twice."""
        stronger: Change | None = change
        idle = 0
        while stronger is not None and self.left and idle < _MOST_IDLE:
            hopeless = _is_hopeless(stronger, self.profile)
            trial = self.model((stronger,), self.profile)
            helps = trial is not None and _helps(trial.profile, self.profile)
            idle += not (helps or hopeless)
            if trial is not None and helps:
                self.keep(trial)
            if trial is not None and trial.profile.memory.fits:
                return
            stronger = self.strengthen(stronger)

    def strengthen(self, change: Change) -> Change | None:
        """The same change with more effect, once for each."""
        if id(change) not in self.stronger:
            self.stronger[id(change)] = change, change.make_stronger()
        return self.stronger[id(change)][1]

    def add_up(
        self, changes: Sequence[Change], together: tuple[Change, ...], now: machine.Profile
    ) -> tuple[tuple[Change, ...], machine.Profile]:
        """Keeps each change that helps beside those before it.

        Args:
          changes: to be tried, in this order.
          together: those before them.
          now: what the model says after these.

        Returns:
          All changes that are kept, and what the model says after them.
        """
        waiting = self.asked(now, changes)
        weak: set[int] = set()  # what follows on something that did nothing: it has one try
        while waiting and not now.memory.fits:
            change = waiting.pop(0)
            several = (*(c for c in together if not c.excludes(change)), change)
            trial = self.model(several, now)
            helps = trial is not None and _helps(trial.profile, now)
            stronger = None if id(change) in weak and not helps else self.strengthen(change)
            if stronger is not None:
                waiting.insert(0, stronger)
                weak.update([] if helps or _is_hopeless(change, now) else [id(stronger)])
            if trial is not None and helps:
                together, now = several, trial.profile
                self.keep(trial)
            waiting = self.asked(now, waiting)
        return together, now

    def keep(self, trial: Trial) -> None:
        """Remembers a trial that helps, once."""
        if trial not in self.done:
            self.done.append(trial)

    def asked(self, now: machine.Profile, waiting: Sequence[Change]) -> list[Change]:
        """What is still to be tried, with what a profile adds to that."""
        new = [c for c in self.further(now) if (c.rule, c.line) not in self.lines]
        self.lines.update((change.rule, change.line) for change in new)
        self.found += new
        return [*waiting, *new]

    def model(self, several: tuple[Change, ...], now: machine.Profile) -> Trial | None:
        """The program after some changes, the last one of them new to `now`.

        None if the budget is spent, or if there is no hope.
        """
        key = tuple(sorted(map(id, several)))
        if _is_hopeless(several[-1], now):
            self.tried.setdefault(key, None)
        if key in self.tried or not self.left:
            return self.tried.get(key)
        self.left, self.models = self.left - 1, self.models + 1
        if self.is_long:
            words = " + ".join(change.short for change in several)
            get_logger().info(f"`{self.profile.name}` does not fit; modelling it with {words}")
        profile = _profile(self.case, several)
        if profile is not None and profile.memory.fits and self.is_long:
            self.left = 0
        self.tried[key] = None if profile is None else Trial(several, profile)
        return self.tried[key]


def _profile(case: Case, several: Sequence[Change]) -> machine.Profile | None:
    """What the model says of a program after changes; None where they cannot be made together.

    A change is made to a function as it was traced, whose primitives may not take it: their rules
    then raise whatever they raise, and that is no reason to leave a report unwritten.
    """
    try:
        for change in sorted(several, key=lambda change: not change.first):
            case = change.apply(case)
        return case.profile()
    except (TypeError, ValueError, KeyError, NotImplementedError):
        return None


def _lacking(memory: machine.Memory) -> int:
    """Bytes that all IPUs together lack, for instructions included."""
    code = max(0, memory.most_code_bytes - memory.code_limit)
    return sum(need_bytes(memory)) + code * memory.tile_peak_bytes.size


def _helps(after: machine.Profile, before: machine.Profile) -> bool:
    """Whether less lacks on all IPUs together, and the fullest tile is no fuller."""
    lacked, lacks = (_lacking(profile.memory) for profile in (before, after))
    fuller = after.memory.tile_peak_bytes.max() > before.memory.tile_peak_bytes.max()
    return lacks <= _HELPS * lacked and not fuller


def _is_hopeless(change: Change, now: machine.Profile) -> bool:
    """Whether all IPUs hold more than fits, however it is shared out to as many as `change` has."""
    if change.ipus is None:
        return False
    held = int(now.memory.tile_peak_bytes.max(axis=1).sum())
    return held > change.ipus * now.memory.limit
