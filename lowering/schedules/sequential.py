"""Sequential: one stage of one micro-batch at a time."""

from __future__ import annotations

from lowering.schedules.rotations import check_multiple, passed_stages
from lowering.schedules.schedule import (
    MAX_MICRO_BATCHES,
    Ipus,
    Schedule,
    check_number,
    check_sizes,
    place,
)
from lowering.schedules.task import Task
from lowering.schedules.ticks import Ticks, in_turn


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
    check_sizes(stages, micro_batches, training)
    check_number(batch_serialization, "batch_serialization={}", MAX_MICRO_BATCHES)
    check_multiple("sequential", micro_batches, batch_serialization)
    serial, sets = batch_serialization, micro_batches // batch_serialization
    word = passed_stages(stages, training)
    if serial <= sets:
        first_set = [Task(*passed, i) for passed in word for i in range(serial)]
        runs = [in_turn(first_set, sets, serial)]
    else:
        firsts = range(0, micro_batches, serial)
        runs = [in_turn([Task(*passed, i)], serial, 1) for i in firsts for passed in word]
    return Schedule(
        name="sequential",
        stages=stages,
        micro_batches=micro_batches,
        training=training,
        ipus=place(stages, ipus),
        ticks=Ticks(runs),
    )
