"""Zero bubble, ZB-H1: gradients of weights fill the gaps (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from lowering.schedules.one_f_one_b import check_one_stage_per_ipu
from lowering.schedules.orders import build_staggered_order, schedule_orders
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase
from lowering.schedules.ticks import Run


# Without `advice_rank`: its backward passes are split into other tasks than programs have.
@register_schedule(rank=70, splits_backward=True)
def zero_bubble(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Splits the backward pass of 1F1B in two: earlier stages wait for inputs' gradients only.

    From `stages` micro-batches on, I of them take 3 * I + stages - 1 ticks, of which an IPU idles
    `stages` - 1, where 1F1B idles as long for each of the three parts. Every stage keeps the
    activations of `stages` micro-batches at most, until the gradient of its weights is made.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    return schedule_split_with_leads("zero-bubble", 1, stages, micro_batches, training, ipus)


def schedule_split_with_leads(
    name: str, lead: int, stages: int, micro_batches: int, training: bool, ipus: Ipus
) -> Schedule:
    """Splits the backward pass; each stage runs more forward passes ahead than the one behind it.

    Args:
      name: the name of the schedule.
      lead: how many more forward passes.
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            f"inference with the {name} schedule: without a backward pass it has nothing to split",
            fix="use one_f_one_b, which is a plain wave for inference",
        )
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu(name, stage_ipus)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(stage_ipus):
        warm_up = min(micro_batches, lead * (stages - 1 - stage))
        lags = {
            (stage, Phase.FORWARD): 0,
            (stage, Phase.BACKWARD): warm_up,
            # Later stages postpone more weight gradients, which fill the ramp-down.
            (stage, Phase.WEIGHTS): warm_up + min(micro_batches, lead * stage),
        }
        orders.update(dict.fromkeys(group, build_staggered_order(lags, micro_batches)))
    return schedule_orders(name, orders, stage_ipus, micro_batches, training)
