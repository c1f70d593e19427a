"""DualPipeV: DualPipe cut in half, with both directions in a V (DeepSeek, DualPipe)."""

from __future__ import annotations

from lowering.schedules.dualpipe_order import FAR, build_order
from lowering.schedules.orders import schedule_orders
from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run
from lowering.schedules.v_placement import is_unfolded, place_in_v
from lowering.schedules.zero_bubble import zero_bubble


@register_schedule(rank=78, folds_stages=True, splits_backward=True)
def dualpipe_v(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts stage s and the last but s on one IPU, as half of the IPUs of `dualpipe` would run.

    No stage has a copy. An IPU of P keeps the activations of 2 * P + 1 stages' micro-batches at
    most, one more than with `zbv` (https://github.com/deepseek-ai/DualPipe, where the two tasks of
    different stages that overlap are one after the other here).

    Args:
      stages: the forward stages, an even number 2 * P.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, the same for stage s and the last but s. None puts
        them on IPU s. With an IPU of its own for every stage it is `zero_bubble`.

    Raises:
      ScheduleError: inference, an odd number of stages, or IPUs in another order.
    """
    stage_ipus = place_in_v("dualpipe-v", stages, micro_batches, training, ipus)
    if is_unfolded(stage_ipus):
        return zero_bubble(stages, micro_batches, training=training, ipus=stage_ipus)
    orders = {
        ipu: _order_at_position(position, stages, micro_batches)
        for position, group in enumerate(stage_ipus[: stages // 2])
        for ipu in group
    }
    return schedule_orders("dualpipe-v", orders, stage_ipus, micro_batches, training)


def _order_at_position(position: int, stages: int, micro_batches: int) -> list[Run]:
    """Returns the order of an IPU: micro-batches come from the far end at its second stage."""

    def task_of(phase: Phase, end: int, number: int) -> Task:
        return Task(stages - 1 - position if end == FAR else position, phase, number)

    return build_order(
        position, stages, near=micro_batches, far=micro_batches, task_of=task_of, step=1
    )
