"""1F1B: one forward pass, one backward pass (Narayanan et al., PipeDream, arXiv 1806.03377)."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.schedules.orders import build_staggered_order, schedule_orders
from lowering.schedules.schedule import (
    Ipus,
    Schedule,
    check_distinct_ipus,
    check_pipeline_sizes,
    ipus_of_stages,
)
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Groups, Phase
from lowering.schedules.ticks import Run


@register_schedule(rank=50, advice_rank=30)
def one_f_one_b(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Runs forward passes for the stages to come, then backward and forward in turn.

    I micro-batches take 2 * (I + stages - 1) ticks, as with GPipe, but stage s keeps the
    activations of `stages` - s micro-batches at most. Inference is a plain wave of
    I + stages - 1 ticks.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    leads = [stages - 1 - stage for stage in range(stages)]
    return schedule_with_leads("1f1b", leads, micro_batches, training, ipus)


def schedule_with_leads(
    name: str, leads: Sequence[int], micro_batches: int, training: bool, ipus: Ipus
) -> Schedule:
    """Runs some forward passes ahead of each stage, then backward and forward in turn.

    Args:
      name: the name of the schedule.
      leads: for each stage, the forward passes before the one that its first backward pass follows.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: two stages on one IPU.
    """
    stage_ipus = ipus_of_stages(len(leads), ipus)
    check_one_stage_per_ipu(name, stage_ipus)
    orders: dict[int, list[Run]] = {}
    for stage, (group, lead) in enumerate(zip(stage_ipus, leads, strict=True)):
        lags = {(stage, Phase.FORWARD): 0}
        if training:
            lags[stage, Phase.BACKWARD] = min(micro_batches, lead)
        orders.update(dict.fromkeys(group, build_staggered_order(lags, micro_batches)))
    return schedule_orders(name, orders, stage_ipus, micro_batches, training)


def check_one_stage_per_ipu(name: str, ipus: Groups) -> None:
    """Raises a `ScheduleError` if stages share an IPU.

    Raises:
      ScheduleError: two that do.
    """
    check_distinct_ipus(
        ipus,
        f"the {name} schedule with stages "
        "{} and {} both on IPU {}: it gives every stage IPUs of its own",
        fix="use interleaved_one_f_one_b, which deals out several stages to an IPU, or gpipe",
    )
