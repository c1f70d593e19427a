"""ZBV, V-ZB: zero bubble in a V, with the memory of 1F1B (arXiv 2405.15362)."""

from __future__ import annotations

from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.v_blocks import schedule_v


@register_schedule(rank=75, splits_backward=True)
def zbv(stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None) -> Schedule:
    """Puts stage s and the last but s on one IPU, and splits the backward pass.

    An IPU of P holds at most P micro-batches, as with 1F1B, and every IPU as many. On up to 8
    IPUs, I micro-batches, at least P of them, take 6 * I + P - 1 ticks, which no schedule in a V is
    shorter than (Qi et al., "Pipeline Parallelism with Controllable Memory").

    Args:
      stages: the forward stages, an even number 2 * P.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, the same for stage s and the last but s. None puts
        them on IPU s. With an IPU of its own for every stage it is `zero_bubble`.

    Raises:
      ScheduleError: inference, an odd number of stages, or IPUs in another order.
    """
    return schedule_v("zbv", stages, micro_batches, training, ipus, lambda p: p)
