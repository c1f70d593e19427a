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

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
