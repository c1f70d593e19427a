"""ZB-H2: zero bubble with twice the memory of 1F1B (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.zero_bubble import schedule_split_with_leads, zero_bubble


@register_schedule(rank=72, splits_backward=True)
def zero_bubble_h2(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Runs twice as many forward passes ahead as `zero_bubble`, so that no IPU pauses.

    From 2 * `stages` - 1 micro-batches on, an IPU idles (`stages` - 1) * (F + B - 2 * W) between
    its first and its last task: nothing if all take as long. Every stage keeps the activations of
    2 * `stages` - 1 micro-batches at most. With fewer micro-batches it is `zero_bubble`.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if micro_batches < 2 * stages - 1:
        return zero_bubble(stages, micro_batches, training=training, ipus=ipus)
    return schedule_split_with_leads("zero-bubble-h2", 2, stages, micro_batches, training, ipus)
