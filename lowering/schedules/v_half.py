"""V-Half: a schedule in a V with half of the memory of 1F1B (arXiv 2405.15362)."""

from __future__ import annotations

from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.v_blocks import schedule_v


@register_schedule(rank=76, splits_backward=True)
def v_half(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts stage s and the last but s on one IPU, which holds half as much as with 1F1B.

    An IPU of P holds at most (P + 2) // 2 micro-batches, and every IPU as many. By the paper an
    IPU's pauses are about half as long as those of 1F1B (Qi et al., "Pipeline Parallelism with
    Controllable Memory").

    Args:
      stages: the forward stages, an even number 2 * P.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, the same for stage s and the last but s. None puts
        them on IPU s. With an IPU of its own for every stage it is `zero_bubble`.

    Raises:
      ScheduleError: inference, an odd number of stages, or IPUs in another order.
    """
    return schedule_v("v-half", stages, micro_batches, training, ipus, lambda p: (p + 2) // 2)
