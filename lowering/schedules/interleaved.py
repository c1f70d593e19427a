"""Interleaved: every IPU runs one stage in every tick, forward and backward in turn."""

from __future__ import annotations

from lowering.schedules.rotations import check_complete_sets, schedule_repeated_word, start_offsets
from lowering.schedules.schedule import (
    Ipus,
    Schedule,
    check_distinct_ipus,
    check_pipeline_sizes,
    ipus_of_stages,
)
from lowering.schedules.schedule_registry import register_schedule


@register_schedule(rank=20, argument="PipelineSchedule.Interleaved", advice_rank=20)
def interleaved(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Runs as many micro-batches at once as never meet on an IPU.

    With K of them and a word of N stages (`stages` for inference, twice that for training), I
    micro-batches take N * (I / K + 1) ticks. When training, K is `stages`, and stage s keeps the
    activations of `stages` - s micro-batches.

    Args:
      stages: the forward stages.
      micro_batches: a multiple of K.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.

    Raises:
      ScheduleError: a number of micro-batches that does not fit, or training with two stages on
        one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    stage_ipus = ipus_of_stages(stages, ipus)
    if training:
        check_distinct_ipus(
            stage_ipus,
            "the interleaved schedule cannot train with stages {} and {} both on IPU {}: it runs "
            "one stage at a time on an IPU",
            fix="give every stage IPUs of its own, or use grouped or sequential "
            "(for inference, interleaved is fine)",
        )
    starts = start_offsets("interleaved", stages, training=training, ipus=stage_ipus)
    check_complete_sets("interleaved", micro_batches, len(starts))
    return schedule_repeated_word("interleaved", starts, stage_ipus, micro_batches, training)
