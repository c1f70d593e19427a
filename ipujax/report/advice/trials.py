"""Tries changes, alone and together, by modelling the program again within a budget.

Each change is tried alone in its mildest form. Then changes are combined until the program fits,
those that cost a user least first, each with as much effect as needed; the rest of the budget goes
to each change alone with more effect.
"""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Callable, Sequence

from ipujax.report.advice.change import Case, Change
from ipujax.report.advice.findings import bytes_to_free
from ipujax.system import get_logger
from lowering import machine

_LOWERED_ANEW = 3  # times as long as a model under other options
_MOST_STEPS = 330_000  # of all models together: some 20 s
_LEAST_MODELS, _MOST_MODELS = 6 * _LOWERED_ANEW, 16 * _LOWERED_ANEW
_LONG = 5_000  # steps; models of more are logged, and if one is enough, none tries more effect
_MOST_IDLE = 2  # models of one change that does nothing, with more effect each time
_HELPS = 0.95  # of the lacking bytes may remain after a change that helps


@dc.dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Some changes and the modelled profile after them."""

    changes: tuple[Change, ...]
    profile: machine.Profile

    def costs_no_more_than(self, trial: Trial) -> bool:
        """Returns whether this trial needs no lower precision and no more IPUs than another."""
        late_ipus_of_rule = {
            change.rule: change.ipus or 0 for change in trial.changes if change.is_late
        }
        late_changes = [change for change in self.changes if change.is_late]
        return all(
            c.rule in late_ipus_of_rule and (c.ipus or 0) <= late_ipus_of_rule[c.rule]
            for c in late_changes
        )


@dc.dataclass(frozen=True, slots=True)
class Trials:
    """The trials that were made of a program's changes.

    Attributes:
      done: the trials that help, in the order in which they were made.
      untried: changes that, alone or with others, the budget did not allow.
      models: the number of models that were made.
    """

    done: tuple[Trial, ...]
    untried: tuple[Change, ...]
    models: int


def count_affordable_models(profile: machine.Profile) -> int:
    """Returns how many models of a program may be made under other options: fewer of longer ones.

    One of a program that is lowered anew counts `_LOWERED_ANEW` times.
    """
    return min(
        max(_MOST_STEPS // max(_count_liveness_steps(profile), 1), _LEAST_MODELS), _MOST_MODELS
    )


def _count_liveness_steps(profile: machine.Profile) -> int:
    return sum(len(liveness.names) for liveness in profile.liveness)


def try_changes(
    case: Case,
    profile: machine.Profile,
    changes: Sequence[Change],
    list_further_changes: Callable[[machine.Profile], Sequence[Change]] = lambda _: (),
) -> Trials:
    """Tries changes by modelling the program with them.

    Args:
      case: the program as it is.
      profile: its modelled profile.
      changes: the changes, in the order to try them.
      list_further_changes: returns further changes for a profile, such as one after changes.
    """
    return _Search(case, profile, changes, list_further_changes).try_all_changes()


class _Search:
    """The state of one search among changes."""

    def __init__(
        self,
        case: Case,
        profile: machine.Profile,
        changes: Sequence[Change],
        list_further_changes: Callable[[machine.Profile], Sequence[Change]],
    ):
        self.case, self.profile, self.further = case, profile, list_further_changes
        self.found = list(changes)
        self.left, self.models = count_affordable_models(profile), 0
        self.is_long = _count_liveness_steps(profile) > _LONG
        self.done: list[Trial] = []
        self.tried: dict[tuple[int, ...], Trial | None] = {}
        self.stronger: dict[int, tuple[Change, Change | None]] = {}
        self.lines: set[tuple[str, str]] = set()  # of changes that profiles asked for

    def try_all_changes(self) -> Trials:
        """Tries each change alone, combinations until the program fits, and stronger changes."""
        self.queue_further_changes(self.profile, ())
        idle_trials = collections.Counter[tuple[str, str]]()
        forms = self.find_insufficient(first := list(self.found), idle_trials)
        if not self.is_long or not any(trial.profile.memory.fits for trial in self.done):
            self.combine_all_changes()
            forms += self.find_insufficient(self.found[len(first) :], idle_trials)
            while forms := self.strengthen_changes(forms, idle_trials):
                forms = self.find_insufficient(forms, idle_trials)
        tried_ids = {change_id for key in self.tried for change_id in key}
        untried = [change for change in self.found if id(change) not in tried_ids]
        return Trials(tuple(self.done), tuple(untried), self.models)

    def combine_all_changes(self) -> None:
        """Combines changes until the program fits, those that cost more than time last."""
        early = [change for change in self.found if not change.is_late]
        combined_changes, combined_profile = self.combine_changes(early, (), self.profile)
        if not combined_profile.memory.fits:
            self.combine_late_changes(combined_changes, combined_profile)

    def combine_late_changes(
        self, combined_changes: tuple[Change, ...], profile: machine.Profile
    ) -> None:
        """Combines each change that costs more than time with others; all if none suffices."""
        late = [change for change in self.found if change.is_late]
        fits = [
            self.combine_changes([change], combined_changes, profile)[1].memory.fits
            for change in late
        ]
        if len(late) > 1 and not any(fits):
            self.combine_changes(late, combined_changes, profile)

    def find_insufficient(
        self, changes: Sequence[Change], idle_trials: collections.Counter[tuple[str, str]]
    ) -> list[Change]:
        """Returns the changes that are not enough alone."""
        return [change for change in changes if not self.is_enough_alone(change, idle_trials)]

    def strengthen_changes(
        self, changes: Sequence[Change], idle_trials: collections.Counter[tuple[str, str]]
    ) -> list[Change]:
        """Returns changes with more effect, without those that did nothing twice."""
        return [
            stronger
            for change in changes
            if self.left and idle_trials[change.rule, change.line] < _MOST_IDLE
            if (stronger := self.strengthen_change(change)) is not None
        ]

    def is_enough_alone(
        self, change: Change, idle_trials: collections.Counter[tuple[str, str]]
    ) -> bool:
        """Returns whether the program fits after one change; counts those that do nothing."""
        trial = self.model_changes((change,), self.profile)
        if trial is not None and _reduces_lacking_bytes(trial.profile, self.profile):
            self.keep_helpful_trial(trial)
        elif not _needs_more_memory_than(change, self.profile):
            idle_trials[change.rule, change.line] += 1
        return trial is not None and trial.profile.memory.fits

    def strengthen_change(self, change: Change) -> Change | None:
        """Returns the same change with more effect, building it once."""
        if id(change) not in self.stronger:
            self.stronger[id(change)] = change, change.make_stronger()
        return self.stronger[id(change)][1]

    def combine_changes(
        self,
        changes: Sequence[Change],
        combined_changes: tuple[Change, ...],
        profile: machine.Profile,
    ) -> tuple[tuple[Change, ...], machine.Profile]:
        """Keeps each change that reduces memory in addition to those before it.

        Args:
          changes: to be tried, in this order.
          combined_changes: the changes made before them.
          profile: the profile after those.

        Returns:
          All changes that are kept, and the profile after them.
        """
        queue = self.queue_further_changes(profile, changes)
        single_try_ids: set[int] = set()  # changes after one that did nothing get one try
        while queue and not profile.memory.fits:
            change = queue.pop(0)
            candidate_changes = (
                *(c for c in combined_changes if not c.cannot_go_with(change)),
                change,
            )
            trial = self.model_changes(candidate_changes, profile)
            helps = trial is not None and _reduces_lacking_bytes(trial.profile, profile)
            stronger = (
                None
                if id(change) in single_try_ids and not helps
                else self.strengthen_change(change)
            )
            if stronger is not None:
                queue.insert(0, stronger)
                single_try_ids.update(
                    [] if helps or _needs_more_memory_than(change, profile) else [id(stronger)]
                )
            if trial is not None and helps:
                combined_changes, profile = candidate_changes, trial.profile
                self.keep_helpful_trial(trial)
            queue = self.queue_further_changes(profile, queue)
        return combined_changes, profile

    def keep_helpful_trial(self, trial: Trial) -> None:
        """Remembers a trial that helps, once."""
        if trial not in self.done:
            self.done.append(trial)

    def queue_further_changes(
        self, profile: machine.Profile, queue: Sequence[Change]
    ) -> list[Change]:
        """Returns the queue of changes with those added that a profile asks for."""
        new = [c for c in self.further(profile) if (c.rule, c.line) not in self.lines]
        self.lines.update((change.rule, change.line) for change in new)
        self.found += new
        return [*queue, *new]

    def model_changes(
        self, changes: tuple[Change, ...], profile_before: machine.Profile
    ) -> Trial | None:
        """Models the program after some changes, the last of them new to `profile_before`.

        None if the budget is spent, or if the last change cannot be enough.
        """
        key = tuple(sorted(map(id, changes)))
        if _needs_more_memory_than(changes[-1], profile_before):
            self.tried.setdefault(key, None)
        if key in self.tried or not self.left:
            return self.tried.get(key)
        lowered_before = self.case.memory.num_lowered
        if self.is_long:
            change_names = " + ".join(change.short for change in changes)
            get_logger().info(
                f"`{self.profile.name}` does not fit; modelling it with {change_names}"
            )
        profile_after = _model_changed_case(self.case, changes)
        is_lowered_anew = self.case.memory.num_lowered > lowered_before
        self.left = max(0, self.left - (_LOWERED_ANEW if is_lowered_anew else 1))
        self.models += 1
        self.tried[key] = None if profile_after is None else Trial(changes, profile_after)
        return self.tried[key]


def _model_changed_case(case: Case, changes: Sequence[Change]) -> machine.Profile | None:
    """Models a case after changes; None where they cannot be made together.

    A change is made to the traced function, whose primitives may not support it: their rules may
    raise any error, and the report is to be written all the same.
    """
    try:
        for change in sorted(changes, key=lambda change: not change.first):
            case = change.apply(case)
        return case.model_profile()
    except (TypeError, ValueError, KeyError, NotImplementedError):
        return None


def _count_lacking_bytes(memory: machine.Memory) -> int:
    """Returns the bytes that all IPUs together lack, for instructions included."""
    lacking_code_bytes = max(0, memory.most_code_bytes - memory.code_limit)
    return sum(bytes_to_free(memory)) + lacking_code_bytes * memory.tile_peak_bytes.size


def _reduces_lacking_bytes(profile_after: machine.Profile, profile_before: machine.Profile) -> bool:
    """Returns whether fewer bytes lack on all IPUs together and the fullest tile is no fuller."""
    lacking_before, lacking_after = (
        _count_lacking_bytes(profile.memory) for profile in (profile_before, profile_after)
    )
    is_fuller = (
        profile_after.memory.tile_peak_bytes.max() > profile_before.memory.tile_peak_bytes.max()
    )
    return lacking_after <= _HELPS * lacking_before and not is_fuller


def _needs_more_memory_than(change: Change, profile: machine.Profile) -> bool:
    """Returns whether all IPUs hold more than the IPUs of `change` have, however divided."""
    if change.ipus is None:
        return False
    peak_bytes = int(profile.memory.tile_peak_bytes.max(axis=1).sum())
    return peak_bytes > change.ipus * profile.memory.limit
