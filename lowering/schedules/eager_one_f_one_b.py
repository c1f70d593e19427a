"""Eager 1F1B: 1F1B that runs ahead, so that transfers are waited for less (arXiv 2211.05322)."""

from __future__ import annotations

from lowering.schedules.one_f_one_b import check_one_stage_per_ipu
from lowering.schedules.orders import build_staggered_order, schedule_orders
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase
from lowering.schedules.ticks import Run


@register_schedule(rank=55)
def eager_one_f_one_b(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Runs twice as many forward passes ahead as 1F1B, then backward and forward in turn.

    I micro-batches take 2 * (I + stages - 1) ticks, as with 1F1B. Where results travel for a while
    between IPUs, a stage has another micro-batch to work on meanwhile, so that equal stages are
    never slower than with 1F1B. For that, stage s keeps the activations of as many as
    2 * (`stages` - 1 - s) + 1 micro-batches. Inference is a plain wave of I + stages - 1 ticks
    (Zhuang et al., "On Optimizing the Communication of Model Parallelism").

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu("eager 1f1b", stage_ipus)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(stage_ipus):
        lags = {(stage, Phase.FORWARD): 0}
        if training:
            lags[stage, Phase.BACKWARD] = min(micro_batches, 2 * (stages - 1 - stage))
        orders.update(dict.fromkeys(group, build_staggered_order(lags, micro_batches)))
    return schedule_orders("eager-1f1b", orders, stage_ipus, micro_batches, training)
