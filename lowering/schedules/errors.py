"""What can be wrong with a schedule, with the place drawn."""

from __future__ import annotations

from typing import Any

from lowering.errors import LoweringError


class ScheduleError(LoweringError):
    """A schedule that cannot be made, or that no pipeline can follow.

    Args:
      what: what is wrong, with the tasks and numbers of this schedule.
      grid: the schedule around the mistake, drawn, or an empty string where there is none yet.
      where: the user's file and line, or an empty string where there is none.
      fix: what to change.
    """

    def __init__(self, what: str, *, grid: str = "", where: str | None = None, fix: str):
        drawn = "".join(f"\n    {line}" for line in grid.splitlines())
        super().__init__(what + drawn, where=where, fix=fix)
        self.summary, self.grid = what, grid


def shown(value: Any) -> str:
    """A value as Python shows it; its type where it cannot, as that of a deleted array."""
    try:
        return repr(value)
    except Exception:
        return f"an object of type {type(value).__name__}"


def check_is(value: Any, kind: type, what: str) -> None:
    """Refuses what is no instance of a class.

    Raises:
      ScheduleError: it says `what` the value should have been.
    """
    if not isinstance(value, kind):
        wanted = f"{what} is a {kind.__name__}, not a {type(value).__name__}: {shown(value)}"
        raise ScheduleError(wanted, fix=f"give a {kind.__name__}")
