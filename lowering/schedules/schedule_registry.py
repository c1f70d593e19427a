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
      splits_backward: whether gradients of weights are tasks of their own.
    """

    name: str
    build: Callable[..., Schedule]
    rank: int
    argument: str
    advice_rank: int | None
    deals_out_stages: bool
    splits_backward: bool


_SCHEDULES: dict[str, RegisteredSchedule] = {}


def register_schedule(
    *,
    rank: int,
    argument: str = "",
    advice_rank: int | None = None,
    deals_out_stages: bool = False,
    splits_backward: bool = False,
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
            splits_backward=splits_backward,
        )
        return build

    return register


@functools.cache
def list_schedules() -> tuple[RegisteredSchedule, ...]:
    """Returns all registered schedules by their ranks."""
    import_modules_beside(__name__)
    return tuple(sorted(_SCHEDULES.values(), key=lambda schedule: schedule.rank))
