"""Interleaved zero bubble: interleaved 1F1B with a split backward pass (arXiv 2401.10241)."""

from __future__ import annotations

from lowering.schedules.interleaved_one_f_one_b import (
    check_stages_repeat,
    deal_out_two_stages,
    schedule_ranks,
)
from lowering.schedules.rotations import check_complete_sets
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase
from lowering.schedules.zero_bubble import zero_bubble

NAME = "interleaved-zero-bubble"


@register_schedule(rank=73, deals_out_stages=True, splits_backward=True)
def interleaved_zero_bubble(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Runs interleaved 1F1B, and fills its gaps with gradients of weights.

    Stage s is on IPU s % P, and the IPU of number r runs the gradients of weights r backward tasks
    later than it could. With one stage on an IPU it is `zero_bubble`.

    Args:
      stages: the forward stages, a multiple of P.
      micro_batches: a multiple of P, unless every stage has an IPU of its own.
      training: must be true.
      ipus: an IPU, or several, for every stage, repeating after P stages. None deals out two
        stages to each of `stages` / 2 IPUs.

    Raises:
      ScheduleError: inference, numbers that are not multiples, or IPUs that do not repeat.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            f"inference with the schedule {NAME}: without a backward pass it has nothing to split",
            fix="use interleaved_one_f_one_b",
        )
    mapping = deal_out_two_stages(NAME, stages) if ipus is None else ipus
    stage_ipus = ipus_of_stages(stages, mapping)
    period = check_stages_repeat(NAME, stage_ipus)
    if period == stages:
        return zero_bubble(stages, micro_batches, training=training, ipus=stage_ipus)
    check_complete_sets(NAME, micro_batches, period)
    return schedule_ranks(
        NAME, stage_ipus, period, micro_batches, (Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHTS)
    )
