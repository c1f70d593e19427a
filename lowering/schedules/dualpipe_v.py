"""DualPipeV: DualPipe cut in half, with both directions in a V (DeepSeek, DualPipe)."""

from __future__ import annotations

from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.v_blocks import schedule_v


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
    return schedule_v("dualpipe-v", stages, micro_batches, training, ipus, lambda p: p + 0.5)
