"""The schedules that ipujax has: each registers itself where it is defined.

A new schedule is one new module of this package, with a function below `@register_schedule`:
`ipu.compare` then takes its name, and advice models programs with it.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import TypeVar

from lowering.ground import import_modules_beside
from lowering.schedules.schedule import Schedule
from lowering.schedules.schedule_errors import ScheduleError

Builder = TypeVar("Builder", bound=Callable[..., Schedule])


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchedule:
    """A schedule of ipujax.

    Attributes:
      name: the name of the function, by which `ipu.compare` takes it.
      build: the function that builds it.
      rank: its position in lists, the smallest first.
      argument: what users pass as `pipeline_schedule` to get it.
      advice_rank: its position among the schedules that advice tries, where the first of equally
        fast ones wins; None if advice never tries it.
      deals_out_stages: whether it puts stage s on IPU s % P, several on each.
      folds_stages: whether it puts stage s and the last but s on one IPU.
      splits_backward: whether gradients of weights are tasks of their own.
      is_plain: whether a stage is in one place, and micro-batches are independent, which planning
        builds on.
    """

    name: str
    build: Callable[..., Schedule]
    rank: int
    argument: str
    advice_rank: int | None
    deals_out_stages: bool
    folds_stages: bool
    splits_backward: bool
    is_plain: bool = True


_RANK_OF_USERS = 1000
_SCHEDULES: dict[str, RegisteredSchedule] = {}


def register_schedule(
    *,
    rank: int,
    argument: str = "",
    advice_rank: int | None = None,
    deals_out_stages: bool = False,
    folds_stages: bool = False,
    splits_backward: bool = False,
    is_plain: bool = True,
) -> Callable[[Builder], Builder]:
    """Registers the decorated function as a schedule; see `RegisteredSchedule`.

    Raises:
      ScheduleError: another schedule has the name of the function.
    """

    def register(build: Builder) -> Builder:
        name = build.__name__
        if name in _SCHEDULES:
            first = _SCHEDULES[name].build.__module__
            raise ScheduleError(
                f"two schedules are named `{name}`: of {first} and of {build.__module__}",
                fix="rename one of the functions",
            )
        _SCHEDULES[name] = RegisteredSchedule(
            name=name,
            build=build,
            rank=rank,
            argument=argument or f"ipujax.schedules.{name}",
            advice_rank=advice_rank,
            deals_out_stages=deals_out_stages,
            folds_stages=folds_stages,
            splits_backward=splits_backward,
            is_plain=is_plain,
        )
        return build

    return register


@functools.cache
def _import_all_schedules() -> None:
    import_modules_beside(__name__)


def list_schedules() -> tuple[RegisteredSchedule, ...]:
    """Returns all registered schedules by their ranks, those of users last."""
    _import_all_schedules()
    return tuple(sorted(_SCHEDULES.values(), key=lambda schedule: schedule.rank))


def add_schedule(name: str, build: Callable[..., Schedule], *, splits_backward: bool) -> None:
    """Registers a user's schedule under a name; one of that name that a user registered goes.

    Raises:
      ScheduleError: a name that a schedule of ipujax has, or that is no name of Python.
    """
    schedules_by_name = {schedule.name: schedule for schedule in list_schedules()}
    if not name.isidentifier():
        raise ScheduleError(
            f"{name!r} as the name of a schedule", fix="use letters, digits and underscores"
        )
    if name in schedules_by_name and schedules_by_name[name].rank < _RANK_OF_USERS:
        raise ScheduleError(
            f"a schedule of ipujax is named {name!r}", fix="register yours under another name"
        )
    _SCHEDULES[name] = RegisteredSchedule(
        name=name,
        build=build,
        rank=_RANK_OF_USERS,
        argument=repr(name),
        advice_rank=None,
        deals_out_stages=False,
        folds_stages=False,
        splits_backward=splits_backward,
    )


def find_registered_schedule(name: str) -> RegisteredSchedule:
    """Returns the schedule of a name, however it is spelled: see `spell_schedule_name`.

    Raises:
      ScheduleError: no schedule has the name.
    """
    for schedule in list_schedules():
        if spell_schedule_name(schedule.name) == spell_schedule_name(name):
            return schedule
    names = ", ".join(schedule.name for schedule in list_schedules())
    raise ScheduleError(f"no schedule is named {name!r}", fix=f"use one of {names}")


def spell_schedule_name(name: str) -> str:
    """Returns what the spellings of one name have in common.

    As papers and other libraries write names in several ways, case and underscores do not count,
    and "1F1B" stands for "one_f_one_b".
    """
    return "".join(filter(str.isalnum, name.lower())).replace("1f1b", "onefoneb")
