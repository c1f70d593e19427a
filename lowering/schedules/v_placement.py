"""Stages that go to the last IPU and back, in a V: stage s and the last but s share an IPU."""

from __future__ import annotations

from lowering.schedules.schedule import (
    Ipus,
    check_distinct_ipus,
    check_pipeline_sizes,
    ipus_of_stages,
)
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.task import Groups


def place_in_v(name: str, stages: int, micro_batches: int, training: bool, ipus: Ipus) -> Groups:
    """Returns the IPUs of each stage: two stages share them, or each stage has its own.

    Args:
      name: the name of the schedule.
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: the IPUs of each stage, as `zbv` takes them.

    Raises:
      ScheduleError: inference, or IPUs of another form.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            f"inference with the schedule {name}: without a backward pass it has nothing to split",
            fix="use gpipe, which is a plain wave for inference",
        )
    if ipus is None and stages % 2:
        raise ScheduleError(
            f"the schedule {name} of {stages} stages, two on each IPU", fix="use an even number"
        )
    mapping = [min(s, stages - 1 - s) for s in range(stages)] if ipus is None else ipus
    stage_ipus = ipus_of_stages(stages, mapping)
    if is_unfolded(stage_ipus):
        return stage_ipus
    half = stages // 2
    if stage_ipus != stage_ipus[::-1] or stages % 2:
        raise ScheduleError(
            f"the schedule {name} of {stages} stages on the IPUs {stage_ipus}",
            fix=f"put stage s and stage {stages - 1} - s on the same IPU",
        )
    message = f"the schedule {name} on the IPUs {stage_ipus[:half]}: some are in several sets"
    check_distinct_ipus(stage_ipus[:half], message, fix="use sets without a common IPU")
    return stage_ipus


def is_unfolded(ipus: Groups) -> bool:
    """Returns whether every stage has IPUs of its own."""
    return len(set(ipus)) == len(ipus)
