"""The bytes that each IPU keeps for backward tasks over time, while a schedule runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Kind, Phase, Task
from lowering.schedules.task_times import times_of_tasks

BytesOverTime: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs of a time and the bytes that are kept from then on."""


def compute_bytes_over_time(
    schedule: Schedule,
    durations: Mapping[Kind, int],
    delays: Sequence[int],
    sizes: Sequence[Fraction],
    units: int,
) -> tuple[BytesOverTime, ...]:
    """Returns the bytes that each IPU keeps over time, in ascending order of IPUs.

    Args:
      schedule: one that `simulate` accepts.
      durations: the duration of a task of each kind.
      delays: for each stage but the last, how long results travel between it and the next one.
      sizes: for each stage, the bytes of a micro-batch from the start of its first task to the end
        of its last one.
      units: how many units of the durations are one of the result's.
    """
    layout = schedule.layout
    changes: dict[int, dict[int, Fraction]] = {
        ipu: defaultdict(Fraction) for ipu in layout.all_ipus
    }
    for task, start, end in times_of_tasks(schedule, durations, delays):
        begins, ends = _find_changes(schedule, task)
        for ipu in layout.ipus_of(task):
            if begins:
                changes[ipu][start] += sizes[task.stage]
            if ends:
                changes[ipu][end] -= sizes[task.stage]
    return tuple(_add_up_changes(changes[ipu], units) for ipu in sorted(changes))


def _find_changes(schedule: Schedule, task: Task) -> tuple[bool, bool]:
    """Returns whether a stage keeps a micro-batch from a task's start on, and to its end only."""
    between = schedule.layout.between
    stage, phase, _ = task
    if (Phase.RECOMPUTE, stage) in between:  # what waits until then counts as nothing
        away, back = Phase.FORWARD, Phase.RECOMPUTE
    elif (Phase.OFFLOAD, stage) in between:
        away, back = Phase.OFFLOAD, Phase.LOAD
    else:
        away = back = None
    return phase in (Phase.FORWARD, back), phase in (away, schedule.last_phase)


def _add_up_changes(changes: Mapping[int, Fraction], units: int) -> BytesOverTime:
    """Returns the sums of all changes up to each time; times without a change are left out."""
    pairs: list[tuple[float, float]] = []
    bytes_kept = Fraction(0)
    for time in sorted({0, *changes}):
        change = changes.get(time, 0)
        bytes_kept += change
        if change or not time:
            pairs.append((time / units, float(bytes_kept)))
    return tuple(pairs)
