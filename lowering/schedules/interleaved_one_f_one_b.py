"""1F1B with several stages on an IPU, dealt out in turn (Narayanan et al., arXiv 2104.04473)."""

from __future__ import annotations

from lowering.schedules.one_f_one_b import one_f_one_b
from lowering.schedules.orders import schedule_orders
from lowering.schedules.rotations import check_complete_sets
from lowering.schedules.schedule import (
    Ipus,
    Schedule,
    check_distinct_ipus,
    check_pipeline_sizes,
    ipus_of_stages,
)
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Groups, Phase, Task
from lowering.schedules.ticks import Run, one_task_per_tick

NAME = "interleaved-1f1b"


@register_schedule(rank=60, advice_rank=40, deals_out_stages=True)
def interleaved_one_f_one_b(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts stage s on IPU s % P; a micro-batch visits each of the P IPUs several times.

    With v stages on an IPU, I micro-batches take 2 * (v * I + P - 1) ticks: the bubble is v times
    smaller than that of 1F1B, for v times as many transfers. With one stage on an IPU it is 1F1B.

    Args:
      stages: the forward stages, a multiple of P.
      micro_batches: a multiple of P, unless every stage has an IPU of its own.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, repeating after P stages. None deals out two
        stages to each of `stages` / 2 IPUs.

    Raises:
      ScheduleError: numbers that are not multiples, or IPUs that do not repeat.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    mapping = deal_out_two_stages(NAME, stages) if ipus is None else ipus
    stage_ipus = ipus_of_stages(stages, mapping)
    period = check_stages_repeat(NAME, stage_ipus)
    if period == stages:
        return one_f_one_b(stages, micro_batches, training=training, ipus=stage_ipus)
    check_complete_sets(NAME, micro_batches, period)
    phases = (Phase.FORWARD, Phase.BACKWARD) if training else (Phase.FORWARD,)
    return schedule_ranks(NAME, stage_ipus, period, micro_batches, phases)


def schedule_ranks(
    name: str, stage_ipus: Groups, period: int, micro_batches: int, phases: tuple[Phase, ...]
) -> Schedule:
    """Builds the schedule of stages that are dealt out, with as many micro-batches as are sets.

    Args:
      name: the name of the schedule.
      stage_ipus: the IPUs of each stage.
      period: after how many stages they repeat.
      micro_batches: a multiple of `period`.
      phases: the phases that each stage has.
    """
    orders: dict[int, list[Run]] = {}
    for rank, group in enumerate(stage_ipus[:period]):
        order = _order_of_rank(rank, period, len(stage_ipus), micro_batches, phases)
        orders.update(dict.fromkeys(group, order))
    return schedule_orders(name, orders, stage_ipus, micro_batches, len(phases) > 1)


def deal_out_two_stages(name: str, stages: int) -> list[int]:
    """Returns the IPUs of stages, two on each.

    Raises:
      ScheduleError: an odd number of stages.
    """
    if stages % 2:
        raise ScheduleError(
            f"the {name} schedule of {stages} stages, two on each IPU",
            fix="use an even number of stages, or say with `ipus` which of them share an IPU",
        )
    return [stage % (stages // 2) for stage in range(stages)]


def check_stages_repeat(name: str, stage_ipus: Groups) -> int:
    """Returns after how many stages their IPUs repeat.

    Raises:
      ScheduleError: they do not repeat, or sets of IPUs overlap.
    """
    stages, period = len(stage_ipus), len(set(stage_ipus))
    if stages % period or stage_ipus != stage_ipus[:period] * (stages // period):
        raise ScheduleError(
            f"the {name} schedule of {stages} stages on the IPUs {stage_ipus}: they must repeat, "
            "each of them with the same number of stages",
            fix="put stage s on IPU s % P, for a P that divides the number of stages",
        )
    message = f"the {name} schedule on the IPUs {stage_ipus[:period]}: some are in several sets"
    check_distinct_ipus(stage_ipus[:period], message, fix="use sets without a common IPU")
    return period


def _order_of_rank(
    rank: int, period: int, stages: int, micro_batches: int, phases: tuple[Phase, ...]
) -> list[Run]:
    """Returns the order of tasks of the IPUs number `rank` of `period`."""

    def task_number(phase: Phase, number: int) -> Task:
        # `period` micro-batches pass all stages before the next `period` do.
        sets, task_in_set = divmod(number, stages)
        turn, member = divmod(task_in_set, period)
        stage = rank + turn * period
        if phase != Phase.FORWARD:
            stage = stages - period + 2 * rank - stage
        return Task(stage, phase, sets * period + member)

    length = stages * (micro_batches // period)
    lags, warm_up, last = {Phase.FORWARD: 0}, 0, 0
    if Phase.BACKWARD in phases:
        # Before its first backward task comes back, an IPU runs all but its last stage on a first
        # set of micro-batches, and two more tasks for each IPU behind it.
        warm_up = min(length, 2 * (period - 1 - rank) + stages - period)
        lags[Phase.BACKWARD] = last = warm_up
    if Phase.WEIGHTS in phases:
        # Later IPUs postpone more weight gradients, which fill the ramp-down.
        lags[Phase.WEIGHTS] = last = warm_up + min(length - warm_up, rank)

    def tasks_between(first: int, end: int) -> list[Task]:
        rounds = [(i, phase, lag) for i in range(first, end) for phase, lag in lags.items()]
        return [task_number(phase, i - lag) for i, phase, lag in rounds if 0 <= i - lag < length]

    times, rounds_left = divmod(length - last, stages)
    return [
        one_task_per_tick(tasks_between(0, last)),
        one_task_per_tick(tasks_between(last, last + stages), times, period),
        one_task_per_tick(tasks_between(length - rounds_left, length + last)),
    ]
