"""Sequential: one stage of one micro-batch at a time."""

from __future__ import annotations

from lowering.schedules.errors import ScheduleError
from lowering.schedules.rotations import check_multiple, passed_stages
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Task


def sequential(
    stages: int,
    micro_batches: int,
    *,
    training: bool = True,
    ipus: Ipus = None,
    batch_serialization: int = 1,
) -> Schedule:
    """Nothing overlaps: I micro-batches through a word of N stages take N * I ticks.

    Args:
      stages: the forward stages.
      micro_batches: any multiple of `batch_serialization`.
      training: whether there are backward tasks; then N is twice `stages`.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.
      batch_serialization: how many micro-batches a stage runs, one after the other, before the
        next stage does; every stage keeps the activations of so many.

    Raises:
      ScheduleError: a number of micro-batches that does not fit.
    """
    check_sizes(stages, micro_batches)
    if batch_serialization < 1:
        raise ScheduleError(f"{batch_serialization=}", fix="use at least one")
    check_multiple("sequential", micro_batches, batch_serialization)
    ticks = tuple(
        (Task(stage, phase, micro_batch),)
        for first in range(0, micro_batches, batch_serialization)
        for stage, phase in passed_stages(stages, training)
        for micro_batch in range(first, first + batch_serialization)
    )
    return Schedule(
        name="sequential",
        stages=stages,
        micro_batches=micro_batches,
        training=training,
        ipus=place(stages, ipus),
        ticks=ticks,
    )
