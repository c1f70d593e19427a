"""The schedule that a user asks for: by its name, as a member of an enumeration, or as itself."""

from __future__ import annotations

from typing import Any

from ipujax.ground import Checks, suggest_closest_name
from ipujax.pipelines.pipeline_arguments import PipelineSchedule
from lowering import schedules

ChosenSchedule = PipelineSchedule | schedules.Spec
ScheduleOrName = ChosenSchedule | str | None
"""A schedule, its name, or None for the usual one."""


def find_schedule(schedule: Any, argument: str, check: Checks) -> ChosenSchedule:
    """Returns the schedule of a name; anything else must be one already.

    Names are those of `PipelineSchedule` and of registered schedules, in any spelling.

    Args:
      schedule: the name, or the schedule.
      argument: its name in the user's call, for messages.
      check: makes the errors.

    Raises:
      IPUError: of `check`: a name that no schedule has, or something that is no schedule.
    """
    if isinstance(schedule, (PipelineSchedule, schedules.Schedule)):
        return schedule
    if isinstance(schedule, str):
        return _find_by_name(schedule, argument, check)
    if callable(schedule):
        return schedule
    expected = (
        "the name of a schedule, a PipelineSchedule, or a function or Schedule of ipujax.schedules"
    )
    raise check.wrong_type_error(expected, schedule, argument)


def find_registered_name(schedule: Any, argument: str, check: Checks) -> str:
    """Returns the name under which a schedule is registered.

    Args:
      schedule: as for `find_schedule`.
      argument: its name in the user's call, for messages.
      check: makes the errors.

    Raises:
      IPUError: of `check`: a schedule that is not registered, or none at all.
    """
    chosen = find_schedule(schedule, argument, check)
    for entry in schedules.list_schedules():
        if chosen in (entry.build, _find_by_name(entry.name, argument, check)):
            return entry.name
    raise check.value_error(
        f"{argument} is a schedule that is not registered, and a plan chooses among those that are",
        "name one of ipu.schedules.names(), or leave it to the plan",
    )


def _find_by_name(name: str, argument: str, check: Checks) -> ChosenSchedule:
    named: dict[str, ChosenSchedule] = {
        **{entry.name: entry.build for entry in schedules.list_schedules()},
        **{member.name.lower(): member for member in PipelineSchedule},
    }
    by_spelling = {schedules.spell_schedule_name(own_name): own_name for own_name in named}
    if (spelling := schedules.spell_schedule_name(name)) in by_spelling:
        return named[by_spelling[spelling]]
    raise check.value_error(
        f"{argument} is {name!r}, and no schedule has that name{suggest_closest_name(name, named)}",
        f"use one of {', '.join(map(repr, named))}, or give a function or Schedule of "
        "ipujax.schedules",
    )
