"""The error of a wrong schedule, with the mistake drawn, and checks of arguments."""

from __future__ import annotations

from typing import Any

from lowering.ground import LoweringError


class ScheduleError(LoweringError):
    """A schedule that cannot be made, or that no pipeline can follow.

    Args:
      what: the mistake, with the tasks and numbers of this schedule.
      grid: the schedule around the mistake, drawn, or an empty string where there is none yet.
      where: the user's file and line, or an empty string where there is none.
      fix: the change that repairs it.
    """

    def __init__(self, what: str, *, grid: str = "", where: str | None = None, fix: str):
        drawn = "".join(f"\n    {line}" for line in grid.splitlines())
        super().__init__(what + drawn, where=where, fix=fix)
        self.summary, self.grid = what, grid


def repr_or_type(value: Any) -> str:
    """Returns a value as Python shows it, or its type if it cannot, as for a deleted array."""
    try:
        return repr(value)
    except Exception:
        return f"an object of type {type(value).__name__}"


def check_instance(value: Any, kind: type, role: str) -> None:
    """Raises a `ScheduleError` if a value is no instance of a class.

    Raises:
      ScheduleError: it names the `role` of the value.
    """
    if not isinstance(value, kind):
        message = (
            f"{role} is a {kind.__name__}, not a {type(value).__name__}: {repr_or_type(value)}"
        )
        raise ScheduleError(message, fix=f"give a {kind.__name__}")
