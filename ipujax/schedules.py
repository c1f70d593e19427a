"""Schedules of pipelines: those of the IPU, others to compare them with, and your own.

A schedule is data: for each tick, the tasks that all IPUs run between two syncs. Look at one, ask
what it costs, keep it as text:

    from ipujax import schedules

    schedule = schedules.grouped(4, 16)          # 4 stages, 16 micro-batches
    print(schedule)                              # a row for each IPU, a column for each tick
    run = schedules.simulate(schedule)
    print(run.bubble, run.fifo_depth)            # 0.333..., (6, 4, 2, 0)
    schedules.save(schedule, "grouped.schedule")

A schedule of your own is a function that gives the tasks of each IPU in order:

    def all_forward_first(stages, micro_batches):
        batches = range(micro_batches)
        return [[f"{s}{p}{m}" for p in "FB" for m in batches] for s in range(stages)]

    schedules.build(all_forward_first, stages=4, micro_batches=16, training=True)
"""

from __future__ import annotations

from ipujax.pipelines import schedules as _schedules

__all__ = [
    "Phase",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "Task",
    "build",
    "distinct_rotations",
    "from_orders",
    "from_text",
    "gpipe",
    "grid",
    "grouped",
    "interleaved",
    "interleaved_one_f_one_b",
    "load",
    "one_f_one_b",
    "overlap",
    "save",
    "sequential",
    "simulate",
    "to_text",
    "zero_bubble",
]


def __dir__() -> list[str]:
    return __all__


Phase = _schedules.Phase
Schedule = _schedules.Schedule
ScheduleError = _schedules.ScheduleError
Simulation = _schedules.Simulation
Task = _schedules.Task
build = _schedules.build
distinct_rotations = _schedules.distinct_rotations
from_orders = _schedules.from_orders
from_text = _schedules.from_text
gpipe = _schedules.gpipe
grid = _schedules.grid
grouped = _schedules.grouped
interleaved = _schedules.interleaved
interleaved_one_f_one_b = _schedules.interleaved_one_f_one_b
load = _schedules.load
one_f_one_b = _schedules.one_f_one_b
overlap = _schedules.overlap
save = _schedules.save
sequential = _schedules.sequential
simulate = _schedules.simulate
to_text = _schedules.to_text
zero_bubble = _schedules.zero_bubble
