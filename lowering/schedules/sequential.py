"""Sequential: one stage of one micro-batch at a time."""

from __future__ import annotations

from lowering.schedules.rotations import check_complete_sets, stage_phases_of_micro_batch
from lowering.schedules.schedule import (
    MAX_MICRO_BATCHES,
    Ipus,
    Schedule,
    check_pipeline_sizes,
    check_positive_int,
    ipus_of_stages,
)
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Task
from lowering.schedules.ticks import Ticks, one_task_per_tick


@register_schedule(rank=30)
def sequential(
    stages: int,
    micro_batches: int,
    *,
    training: bool = True,
    ipus: Ipus = None,
    batch_serialization: int = 1,
) -> Schedule:
    """Overlaps nothing: I micro-batches through a word of N stages take N * I ticks.

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
    check_pipeline_sizes(stages, micro_batches, training)
    check_positive_int(batch_serialization, "batch_serialization={}", MAX_MICRO_BATCHES)
    check_complete_sets("sequential", micro_batches, batch_serialization)
    set_size, sets = batch_serialization, micro_batches // batch_serialization
    word = stage_phases_of_micro_batch(stages, training)
    if set_size <= sets:
        first_set = [Task(*stage_and_phase, i) for stage_and_phase in word for i in range(set_size)]
        runs = [one_task_per_tick(first_set, sets, set_size)]
    else:
        firsts = range(0, micro_batches, set_size)
        runs = [
            one_task_per_tick([Task(*passed, i)], set_size, 1) for i in firsts for passed in word
        ]
    return Schedule(
        name="sequential",
        stages=stages,
        micro_batches=micro_batches,
        training=training,
        ipus=ipus_of_stages(stages, ipus),
        ticks=Ticks(runs),
    )
