"""Schedules of pipelines: those of the IPU, others to compare them with, and your own."""

from __future__ import annotations

from pathlib import Path

from ipujax.ground import Checks as _Checks
from ipujax.ground import files as _files
from ipujax.pipelines import schedule_search as _search
from lowering import schedules as _schedules

_MOST_BYTES = 2**24  # of a schedule's text
_check = _Checks(_schedules.ScheduleError, _schedules.ScheduleError)

FoundSchedule = _search.FoundSchedule
Phase = _schedules.Phase
Schedule = _schedules.Schedule
ScheduleError = _schedules.ScheduleError
Simulation = _schedules.Simulation
Task = _schedules.Task
_check.guard(Schedule)
_check.guard(Simulation)

build = _schedules.build
distinct_rotations = _schedules.distinct_rotations
eager_one_f_one_b = _schedules.eager_one_f_one_b
from_orders = _schedules.from_orders
from_text = _schedules.from_text
gpipe = _schedules.gpipe
grid = _schedules.grid
grouped = _schedules.grouped
interleaved = _schedules.interleaved
interleaved_one_f_one_b = _schedules.interleaved_one_f_one_b
interleaved_zero_bubble = _schedules.interleaved_zero_bubble
looped_bfs = _schedules.looped_bfs
one_f_one_b = _schedules.one_f_one_b
overlap = _schedules.overlap
register = _schedules.register
search = _search.search
sequential = _schedules.sequential
simulate = _schedules.simulate
to_text = _schedules.to_text
v_half = _schedules.v_half
v_min = _schedules.v_min
zbv = _schedules.zbv
zero_bubble = _schedules.zero_bubble
zero_bubble_h1 = _schedules.zero_bubble_h1
zero_bubble_h2 = _schedules.zero_bubble_h2


def names() -> tuple[str, ...]:
    """Returns the names of all registered schedules: those of ipujax, then your own."""
    return tuple(schedule.name for schedule in _schedules.list_schedules())


@_check.guard
def save(schedule: Schedule, path: str | Path) -> None:
    """Writes a schedule to a file, as `to_text` gives it; `load` reads it back.

    Raises:
      ScheduleError: a file that cannot be written.
    """
    _check.require_path(path, "where to save a schedule")
    try:
        _files.write_text(path, to_text(schedule))
    except OSError as error:
        raise ScheduleError(
            f"the schedule {schedule.name} cannot be written: {error}",
            fix="name a file in a folder that exists and that you may write to",
        ) from error


@_check.guard
def load(path: str | Path) -> Schedule:
    """Reads a schedule from a file and simulates it, so that what is given is known to work.

    Raises:
      ScheduleError: a file that cannot be read, that is no text of a schedule, that lost its end,
        or whose schedule no pipeline can follow.
    """
    _check.require_path(path, "where to load a schedule from")
    try:
        text = _files.read_bytes(path, _MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ScheduleError(
            f"no schedule can be read from {path}: {error}",
            fix="give the path of a file that `schedules.save` wrote",
        ) from error
    schedule = from_text(text, source=str(path))
    try:
        simulate(schedule)
    except ScheduleError as error:
        raise ScheduleError(
            error.summary, grid=error.grid, where=str(path), fix=error.fix
        ) from error
    return schedule
