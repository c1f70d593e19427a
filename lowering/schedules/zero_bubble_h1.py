"""ZB-H1: zero bubble with the memory of 1F1B (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.zero_bubble import zero_bubble


@register_schedule(rank=71, splits_backward=True)
def zero_bubble_h1(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Returns `zero_bubble`'s schedule, under the paper's name for it.

    From `stages` micro-batches on, an IPU idles (`stages` - 1) * (F + B - W), and keeps the
    activations of `stages` micro-batches at most.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    return zero_bubble(stages, micro_batches, training=training, ipus=ipus)
