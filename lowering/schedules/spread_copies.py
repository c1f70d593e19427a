"""Schedules whose copies of stages are turned into separate stages, as programs have them."""

from __future__ import annotations

import dataclasses as dc

from lowering.schedules.layout import Layout
from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Phase
from lowering.schedules.ticks import Run, Ticks, representative_ticks, runs_of_ticks


def spread_copies(schedule: Schedule) -> Schedule:
    """Returns the schedule with stage s of copy c as the stage c * stages + s, on its IPUs.

    Its micro-batches pass through the stages of their own copies only, so it says when tasks run,
    and cannot be simulated.
    """
    if len(schedule.copies) == 1:
        return schedule
    layout = schedule.layout
    ticks = Ticks(
        part for run in runs_of_ticks(schedule.ticks) for part in _spread_run(layout, run)
    )
    ipus = tuple(group for copy in layout.copies for group in copy)
    return dc.replace(
        schedule,
        stages=len(ipus),
        ipus=ipus,
        ticks=ticks,
        copies=(ipus,),
        copy_pattern=(0,),
        needs_table=(),
    )


def _spread_run(layout: Layout, run: Run) -> list[Run]:
    """Returns a run with the stages of copies; in one round where its micro-batches change them."""
    if run.step % len(layout.copy_pattern):
        unrolled = tuple(tick for number in range(run.times) for tick in run.ticks_of_round(number))
        run = Run(unrolled)
    ticks = tuple(
        tuple(
            task._replace(stage=layout.copy_of(task.micro_batch) * layout.stages + task.stage)
            for task in tick
        )
        for tick in run.ticks
    )
    return [Run(ticks, run.times, run.step)]


def runs_forward_in_order(schedule: Schedule) -> bool:
    """Returns whether every stage takes the micro-batches forward by their numbers."""
    last: dict[int, int] = {}
    for tick in representative_ticks(schedule.ticks):
        for stage, phase, number in tick:
            if phase == Phase.FORWARD:
                if number < last.get(stage, 0):
                    return False
                last[stage] = number
    return True


def count_micro_batches(schedule: Schedule, stage: int) -> int:
    """Returns how many micro-batches pass through a stage of a copy, numbered as above."""
    copy = stage // schedule.stages
    whole_patterns, last_micro_batches = divmod(schedule.micro_batches, len(schedule.copy_pattern))
    pattern = schedule.copy_pattern
    return whole_patterns * pattern.count(copy) + pattern[:last_micro_batches].count(copy)


def fifo_depths(schedule: Schedule, last: Phase | None = None) -> list[int]:
    """Returns how many micro-batches wait at most in each stage of each copy, numbered as above.

    Args:
      schedule: the schedule.
      last: the phase after which a micro-batch waits no longer; None for the stage's last one.
    """
    spread = spread_copies(schedule)
    if not schedule.training:
        return [0] * spread.stages
    last = schedule.last_phase if last is None else last
    return [
        count_waiting(spread, (Phase.FORWARD, stage), (last, stage))
        for stage in range(spread.stages)
    ]


def count_waiting(spread: Schedule, first: tuple[Phase, int], last: tuple[Phase, int]) -> int:
    """Returns how many micro-batches wait at most between two tasks while one is at work.

    Args:
      spread: a schedule that `simulate` accepts, with the copies of stages as stages.
      first: phase and stage of the task after which a micro-batch waits.
      last: phase and stage of the task after which it waits no longer.
    """
    changes = {first: 1, last: -1}
    waiting = most = 0
    for run in runs_of_ticks(spread.ticks):
        begin, most_in_round = waiting, waiting
        for task in (task for tick in run.ticks for task in tick):
            waiting += changes.get((task.phase, task.stage), 0)
            most_in_round = max(most_in_round, waiting)
        more_per_round = waiting - begin
        most = max(most, most_in_round, most_in_round + (run.times - 1) * more_per_round)
        waiting = begin + run.times * more_per_round
    return max(0, most - 1)
