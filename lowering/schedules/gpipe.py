"""GPipe: all forward passes, then all backward passes (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

from lowering.schedules.orders import schedule_orders
from lowering.schedules.rotations import stage_phases_of_micro_batch
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Task
from lowering.schedules.ticks import Run, one_task_per_tick


@register_schedule(rank=40, advice_rank=50)
def gpipe(stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None) -> Schedule:
    """Fills the pipeline with all micro-batches before the first one goes back.

    With an IPU for every stage, I micro-batches take 2 * (I + stages - 1) ticks, half of that for
    inference, and every stage keeps the activations of all of them. Stages that share an IPU run
    one after the other, each on all micro-batches.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    stage_ipus = ipus_of_stages(stages, ipus)
    orders: dict[int, list[Run]] = {ipu: [] for group in stage_ipus for ipu in group}
    for stage, phase in stage_phases_of_micro_batch(stages, training):
        for ipu in stage_ipus[stage]:
            orders[ipu].append(one_task_per_tick([Task(stage, phase, 0)], micro_batches, 1))
    return schedule_orders("gpipe", orders, stage_ipus, micro_batches, training)
