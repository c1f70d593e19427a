"""The start and end times of each task of a schedule, task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Kind, Task


def times_of_tasks(
    schedule: Schedule, durations: Mapping[Kind, int], delays: Sequence[int]
) -> list[tuple[Task, int, int]]:
    """Returns the start and end of each task, if it starts once its IPUs and inputs are there.

    Args:
      schedule: one that `simulate` accepts.
      durations: the duration of a task of each kind.
      delays: for each stage but the last, how long results travel between it and the next one.
    """
    layout = schedule.layout
    free = dict.fromkeys(layout.all_ipus, 0)
    ends: dict[Task, int] = {}
    times: list[tuple[Task, int, int]] = []
    for task in (task for tick in schedule.ticks for task in tick):
        group = layout.ipus_of(task)
        start = max(free[ipu] for ipu in group)
        for needed in layout.needs(task):
            travels = set(group).isdisjoint(layout.ipus_of(needed))
            delay = delays[min(task.stage, needed.stage)] if travels else 0
            start = max(start, ends[needed] + delay)
        ends[task] = start + durations[task.phase, task.stage]
        free.update(dict.fromkeys(group, ends[task]))
        times.append((task, start, ends[task]))
    return times
