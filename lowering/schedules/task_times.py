"""When each task of a schedule runs, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Task, inputs_of_task
from lowering.schedules.task_progress import Kind


def times_of_tasks(
    schedule: Schedule, durations: Mapping[Kind, int], delays: Sequence[int]
) -> list[tuple[Task, int, int]]:
    """Returns the start and end of each task, if it starts once its IPUs and inputs are there.

    Args:
      schedule: one that `simulate` accepts.
      durations: the duration of a task of each kind.
      delays: for each stage but the last, how long results travel between it and the next one.
    """
    free = {ipu: 0 for group in schedule.ipus for ipu in group}
    ends: dict[Task, int] = {}
    times: list[tuple[Task, int, int]] = []
    for task in (task for tick in schedule.ticks for task in tick):
        stage, phase, micro_batch = task
        group = schedule.ipus[stage]
        start = max(free[ipu] for ipu in group)
        for input_phase, other in inputs_of_task(phase, stage, schedule.stages):
            travels = set(group).isdisjoint(schedule.ipus[other])
            delay = delays[min(stage, other)] if travels else 0
            start = max(start, ends[Task(other, input_phase, micro_batch)] + delay)
        ends[task] = start + durations[phase, stage]
        free.update(dict.fromkeys(group, ends[task]))
        times.append((task, start, ends[task]))
    return times
