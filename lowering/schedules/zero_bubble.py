"""Zero bubble, ZB-H1: gradients of weights fill the gaps (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

import itertools

from lowering.schedules.errors import ScheduleError
from lowering.schedules.one_f_one_b import check_own_ipus
from lowering.schedules.orders import arranged
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run, in_turn


def zero_bubble(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """1F1B with the backward pass in two: the earlier stage waits for the inputs' gradient only.

    From `stages` micro-batches on, I of them take 3 * I + stages - 1 ticks, of which an IPU idles
    `stages` - 1, where 1F1B idles as long for each of the three parts. Every stage keeps the
    activations of `stages` micro-batches at most, until the gradient of its weights is made.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_sizes(stages, micro_batches)
    if not training:
        raise ScheduleError(
            "inference with the zero-bubble schedule: without a backward pass it has nothing to "
            "split",
            fix="use one_f_one_b, which is a plain wave for inference",
        )
    placed = place(stages, ipus)
    check_own_ipus("zero-bubble", placed)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(placed):
        orders.update(dict.fromkeys(group, _order(stage, stages, micro_batches)))
    return arranged(
        "zero-bubble",
        orders,
        stages=stages,
        micro_batches=micro_batches,
        training=True,
        ipus=placed,
    )


def _order(stage: int, stages: int, micro_batches: int) -> list[Run]:
    warm_up = min(micro_batches, stages - 1 - stage)
    order = [in_turn([Task(stage, Phase.FORWARD, 0)], warm_up, 1)]
    # Later stages put off more: what they put off fills the ramp-down.
    put_off = min(micro_batches, stage)
    bounds = sorted((0, put_off, micro_batches - warm_up, micro_batches))
    for first, end in itertools.pairwise(bounds):
        tasks = [Task(stage, Phase.BACKWARD, first)]
        if first < micro_batches - warm_up:
            tasks.insert(0, Task(stage, Phase.FORWARD, first + warm_up))
        if first >= stage:
            tasks.append(Task(stage, Phase.WEIGHTS, first - stage))
        order.append(in_turn(tasks, end - first, 1))
    left = Task(stage, Phase.WEIGHTS, micro_batches - put_off)
    return [*order, in_turn([left], put_off, 1)]
