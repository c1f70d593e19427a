"""Looped breadth-first: GPipe with several stages on an IPU, in turn (arXiv 2211.05953)."""

from __future__ import annotations

import dataclasses as dc

from lowering.schedules.gpipe import gpipe
from lowering.schedules.interleaved_one_f_one_b import check_stages_repeat, deal_out_two_stages
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_registry import register_schedule


@register_schedule(rank=65, deals_out_stages=True)
def looped_bfs(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts stage s on IPU s % P, and runs each stage on all micro-batches before the next one.

    With v stages on an IPU, I micro-batches take 2 * (v * I + P - 1) ticks, if I is at least P. Any
    number of micro-batches will do, and every stage keeps the activations of all of them
    (Lamy-Poirier, "Breadth-First Pipeline Parallelism").

    Args:
      stages: the forward stages, a multiple of P.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, repeating after P stages. None deals out two
        stages to each of `stages` / 2 IPUs.

    Raises:
      ScheduleError: numbers that are not multiples, or IPUs that do not repeat.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    mapping = deal_out_two_stages("looped-bfs", stages) if ipus is None else ipus
    stage_ipus = ipus_of_stages(stages, mapping)
    check_stages_repeat("looped-bfs", stage_ipus)
    schedule = gpipe(stages, micro_batches, training=training, ipus=stage_ipus)
    return dc.replace(schedule, name="looped-bfs")
