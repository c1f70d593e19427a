"""Grouped: every IPU runs all its stages, forward and backward, in every tick."""

from __future__ import annotations

from lowering.schedules.rotations import check_complete_sets, schedule_repeated_word, start_offsets
from lowering.schedules.schedule import (
    Ipus,
    Schedule,
    check_boolean,
    check_pipeline_sizes,
    ipus_of_stages,
)
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule


@register_schedule(rank=10, argument="PipelineSchedule.Grouped", advice_rank=10)
def grouped(
    stages: int,
    micro_batches: int,
    *,
    training: bool = True,
    ipus: Ipus = None,
    io_tiles: bool = False,
) -> Schedule:
    """Starts a micro-batch in every tick: I + N ticks for I micro-batches and a word of N stages.

    N is `stages` for inference and twice that for training. Stage s keeps the activations of
    2 * (stages - 1 - s) + 1 micro-batches. The last tick is empty: the original ramps down for as
    long as it ramps up.

    Args:
      stages: the forward stages.
      micro_batches: a multiple of N.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.
      io_tiles: whether tiles are reserved for transfers, which then overlap with the stages; any
        number of micro-batches from N + 2 on will do.

    Raises:
      ScheduleError: a number of micro-batches that does not fit.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    check_boolean(io_tiles, "io_tiles")
    stage_ipus = ipus_of_stages(stages, ipus)
    starts = start_offsets("grouped", stages, training=training)
    length = len(starts)
    if not io_tiles:
        check_complete_sets("grouped", micro_batches, length)
    elif micro_batches < length + 2:
        raise ScheduleError(
            f"{micro_batches} micro-batches in the grouped schedule with I/O tiles: there must be "
            f"at least {length + 2}, two more than stages to pass",
            fix=f"use {length + 2} micro-batches or more",
        )
    return schedule_repeated_word("grouped", starts, stage_ipus, micro_batches, training)
