"""DualPipe: both directions at once, with a split backward pass (DeepSeek-V3, arXiv 2412.19437)."""

from __future__ import annotations

import functools

from lowering.schedules.bidirectional import number_both_ways, place_both_ways
from lowering.schedules.building_blocks import Block, BlockPipeline, repeat_blocks
from lowering.schedules.earliest_ticks import dispatch_key
from lowering.schedules.one_f_one_b import check_one_stage_per_ipu
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Kind, Phase, Task
from lowering.schedules.ticks import Run, Tick, Ticks
from lowering.schedules.zero_bubble import zero_bubble


@register_schedule(rank=81, splits_backward=True, is_plain=False)
def dualpipe(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts a copy of each stage on IPU P - 1 - s as well, and fills gaps with weights' gradients.

    For an even number P of stages, I micro-batches, an even number of at least 2 * P, take
    3 * I + P / 2 - 1 ticks. An IPU keeps the activations of P + 1 micro-batches at most, for twice
    the memory of parameters. Tasks are those of the paper ("DeepSeek-V3 Technical Report"), one
    after the other on an IPU; an odd last micro-batch goes from the first IPU.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i. Where the
        stages s and P - 1 - s have different numbers of IPUs, it is `zero_bubble`, as it is with
        one stage or micro-batch.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            "inference with the schedule dualpipe: without a backward pass it has nothing to split",
            fix="use chimera, which runs in both directions as well",
        )
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu("dualpipe", stage_ipus)
    layout = place_both_ways(stage_ipus, micro_batches)
    if layout is None:
        return zero_bubble(stages, micro_batches, training=training, ipus=stage_ipus)
    return Schedule(
        name="dualpipe",
        stages=stages,
        micro_batches=micro_batches,
        training=True,
        ipus=stage_ipus,
        ticks=_ticks_both_ways(stages, micro_batches),
        copies=layout.copies,
        copy_pattern=layout.copy_pattern,
    )


@functools.lru_cache(maxsize=256)
def _ticks_both_ways(stages: int, micro_batches: int) -> Ticks:
    """Returns the ticks of pairs of micro-batches, one in each direction."""
    places = [*range(stages), *reversed(range(stages))]
    pipeline = BlockPipeline(places, stages + 1, copies=2)
    ticks = repeat_blocks(pipeline, [_build_block(stages)], (micro_batches + 1) // 2)
    if ticks is None:
        raise ScheduleError(
            f"no schedule of {stages} stages in both directions holds {stages + 1} micro-batches",
            fix="use fewer stages, or another schedule",
        )
    return Ticks(
        Run(
            tuple(_both_ways(tick, stages, micro_batches) for tick in run.ticks),
            run.times,
            2 * run.step,
        )
        for run in ticks.runs
    )


def _build_block(stages: int) -> Block:
    """Returns the times of a pair of micro-batches: stages of the second one follow the first's."""
    times: dict[Kind, int] = {}
    for first in (0, stages):
        for stage in range(stages):
            backward = 2 * stages - 1 - stage
            times[Phase.FORWARD, first + stage] = stage
            times[Phase.BACKWARD, first + stage] = backward
            times[Phase.WEIGHTS, first + stage] = backward + 1
    return Block(times, lazy=True)


def _both_ways(tick: Tick, stages: int, micro_batches: int) -> Tick:
    """Returns the tasks of a tick, with the stages and the micro-batches of the model."""
    tasks = (
        number_both_ways(Task(stage % stages, phase, index), stage // stages)
        for stage, phase, index in tick
    )
    return tuple(sorted((t for t in tasks if t.micro_batch < micro_batches), key=dispatch_key))
