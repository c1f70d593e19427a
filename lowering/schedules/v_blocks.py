"""Schedules in a V that repeat a building block under a limit of memory (arXiv 2405.15362)."""

from __future__ import annotations

import functools
from collections.abc import Callable

from lowering.schedules.building_blocks import Block, BlockPipeline, repeat_blocks
from lowering.schedules.schedule import Ipus, Schedule
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.task import Kind, Phase
from lowering.schedules.ticks import Ticks
from lowering.schedules.v_placement import is_unfolded, place_in_v
from lowering.schedules.zero_bubble import zero_bubble


def schedule_v(
    name: str,
    stages: int,
    micro_batches: int,
    training: bool,
    ipus: Ipus,
    memory: Callable[[int], float],
) -> Schedule:
    """Schedules stages in a V under a limit of memory.

    Args:
      name: the name of the schedule.
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: the IPUs of each stage, as `zbv` takes them.
      memory: gives the most micro-batches that an IPU holds, from the number of IPUs; a stage of
        an IPU counts half.

    Raises:
      ScheduleError: inference, or IPUs of another form.
    """
    stage_ipus = place_in_v(name, stages, micro_batches, training, ipus)
    if is_unfolded(stage_ipus):
        return zero_bubble(stages, micro_batches, training=training, ipus=stage_ipus)
    half = stages // 2
    return Schedule(
        name=name,
        stages=stages,
        micro_batches=micro_batches,
        training=True,
        ipus=stage_ipus,
        ticks=_ticks_of_v(half, micro_batches, int(2 * memory(half))),
    )


@functools.lru_cache(maxsize=256)
def _ticks_of_v(ipus: int, micro_batches: int, memory: int) -> Ticks:
    stages = 2 * ipus
    pipeline = BlockPipeline([min(s, stages - 1 - s) for s in range(stages)], memory)
    ticks = repeat_blocks(pipeline, _list_blocks(ipus), micro_batches)
    if ticks is None:
        raise ScheduleError(
            f"no schedule of {stages} stages in a V holds {memory / 2:g} micro-batches on an IPU",
            fix="use fewer stages, or a schedule with more memory",
        )
    return ticks


def _list_blocks(ipus: int) -> list[Block]:
    """Returns blocks to try: those of the paper, for least memory and half of it, and others."""
    least = _times_of_passes(ipus, (1, 1, 1, 1))
    waiting = _times_of_passes(ipus, (1, 1, 1, 1), pause=2)
    half = _times_of_passes(ipus, (2, 1, 2, 1))
    early = _times_of_passes(ipus, (0, 0, 3, 0), pause=3)
    steep = _times_of_passes(ipus, (2, 3, 0, 1), turn=1)
    return [
        Block(_fill_with_weights(least), lazy=False),
        Block(_fill_with_weights(least), lazy=True),
        Block(_fill_with_weights(waiting), lazy=True),
        Block(_add_weights(least, 1, 1), lazy=True),
        Block(_add_weights(least, 7, 7), lazy=True),
        Block(_add_weights(half, 1, 1), lazy=True),
        Block(_add_weights(steep, 5, 1), lazy=True),
        Block(_add_weights(early, 1, 1), lazy=True, reserves=True),
    ]


def _times_of_passes(
    ipus: int, steps: tuple[int, int, int, int], *, turn: int = 0, pause: int = 0
) -> dict[Kind, int]:
    """Returns when a micro-batch goes to the last IPU and back, forward and then backward.

    Args:
      ipus: the number of IPUs.
      steps: the ticks from one IPU to the next in each of the four passes.
      turn: how long it waits on the last IPU.
      pause: how long it waits between its forward and backward tasks.
    """
    half, stages = range(ipus), 2 * ipus
    passes = [
        ([(Phase.FORWARD, s) for s in half], 0),
        ([(Phase.FORWARD, ipus + s) for s in half], 1 + turn),
        ([(Phase.BACKWARD, stages - 1 - s) for s in half], 1 + pause),
        ([(Phase.BACKWARD, ipus - 1 - s) for s in half], 1 + turn),
    ]
    times: dict[Kind, int] = {}
    now = 0
    for (kinds, wait), step in zip(passes, steps, strict=True):
        now += wait
        times.update({kind: now + step * number for number, kind in enumerate(kinds)})
        now += step * (ipus - 1)
    return times


def _add_weights(times: dict[Kind, int], early: int, late: int) -> dict[Kind, int]:
    """Adds gradients of weights so many ticks after the backward tasks of each half of stages."""
    stages = len(times) // 2
    return times | {
        (Phase.WEIGHTS, stage): times[Phase.BACKWARD, stage]
        + (early if stage < stages // 2 else late)
        for stage in range(stages)
    }


def _fill_with_weights(times: dict[Kind, int]) -> dict[Kind, int]:
    """Adds gradients of weights in the first tick that no round has another task in."""
    stages, filled = len(times) // 2, dict(times)
    for ipu in range(stages // 2):
        own = (ipu, stages - 1 - ipu)
        used = {time % 6 for (_, stage), time in times.items() if stage in own}
        for stage in sorted(own, key=lambda stage: times[Phase.BACKWARD, stage]):
            time = times[Phase.BACKWARD, stage] + 1
            while time % 6 in used:
                time += 1
            used.add(time % 6)
            filled[Phase.WEIGHTS, stage] = time
    return filled
