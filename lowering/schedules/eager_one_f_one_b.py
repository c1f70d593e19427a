"""Eager 1F1B: 1F1B that runs ahead, so that transfers are waited for less (arXiv 2211.05322)."""

from __future__ import annotations

from lowering.schedules.one_f_one_b import schedule_with_leads
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes
from lowering.schedules.schedule_registry import register_schedule


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
    leads = [2 * (stages - 1 - stage) for stage in range(stages)]
    return schedule_with_leads("eager-1f1b", leads, micro_batches, training, ipus)
