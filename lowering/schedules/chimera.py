"""Chimera: two pipelines in opposite directions through the same IPUs (arXiv 2107.06925)."""

from __future__ import annotations

from lowering.schedules.bidirectional import (
    number_both_ways,
    orders_by_ipu,
    place_both_ways,
)
from lowering.schedules.one_f_one_b import check_one_stage_per_ipu, one_f_one_b
from lowering.schedules.orders import schedule_layout
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run, one_task_per_tick


@register_schedule(rank=80, is_plain=False)
def chimera(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts a copy of each stage on IPU P - 1 - s as well: odd micro-batches go from there.

    For an even number P of stages, I micro-batches, a multiple of P, take 2 * I + P - 2 ticks: what
    idles in 1F1B is halved, for twice the memory of parameters. An IPU keeps the activations of
    P micro-batches at most. Units of P micro-batches follow one another directly (Li and Hoefler,
    "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines").

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i. Where the
        stages s and P - 1 - s have different numbers of IPUs, it is `one_f_one_b`, as it is with
        one stage or micro-batch.

    Raises:
      ScheduleError: two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu("chimera", stage_ipus)
    layout = place_both_ways(stage_ipus, micro_batches)
    if layout is None:
        return one_f_one_b(stages, micro_batches, training=training, ipus=stage_ipus)
    orders = [
        _order_at_position(position, stages, micro_batches, training) for position in range(stages)
    ]
    return schedule_layout("chimera", orders_by_ipu(stage_ipus, orders), layout, training)


def _order_at_position(position: int, stages: int, micro_batches: int, training: bool) -> list[Run]:
    """Returns the order of an IPU: its tasks by the ticks of units that overlap.

    A unit is as many micro-batches as there are stages, and ends within two of the windows in which
    units start, so that each window between whole units is like the one before.
    """
    unit = 2 * max(stages // 2, 1)
    whole_units = micro_batches // unit
    windows: list[list[Task]] = [[] for _ in range(5)]
    # Two whole units, and what is left of the last: the others repeat the second one.
    numbers = range(min(whole_units, 2) * unit + micro_batches % unit)
    timed = [entry for n in numbers for entry in _time_tasks(n, position, stages, unit, training)]
    for tick, *_, task in sorted(timed):
        windows[tick // ((1 + training) * unit)].append(task)
    if whole_units < 2:
        return [one_task_per_tick(task for window in windows for task in window)]
    repeated_micro_batches = (whole_units - 2) * unit
    later = [
        task._replace(micro_batch=task.micro_batch + repeated_micro_batches)
        for window in windows[2:]
        for task in window
    ]
    return [
        one_task_per_tick(windows[0]),
        one_task_per_tick(windows[1], whole_units - 1, unit),
        one_task_per_tick(later),
    ]


def _time_tasks(
    number: int, position: int, stages: int, unit: int, training: bool
) -> list[tuple[int, int, int, Task]]:
    """Returns the tick of the tasks of a micro-batch on an IPU, which come before others of it."""
    index, direction = divmod(number, 2)
    stage = stages - 1 - position if direction else position
    start = (1 + training) * unit * (number // unit) + 2 * (index % (unit // 2))
    ticks = {Phase.FORWARD: start + stage, Phase.BACKWARD: start + 2 * stages - 1 - stage}
    return [
        (tick, -order, direction, number_both_ways(Task(stage, phase, index), direction))
        for order, (phase, tick) in enumerate(ticks.items())
        if training or phase == Phase.FORWARD
    ]
