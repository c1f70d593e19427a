"""1F1B with several stages on an IPU, dealt out in turn (Narayanan et al., arXiv 2104.04473)."""

from __future__ import annotations

from lowering.schedules.errors import ScheduleError
from lowering.schedules.one_f_one_b import one_f_one_b
from lowering.schedules.orders import arranged
from lowering.schedules.rotations import check_multiple
from lowering.schedules.schedule import Ipus, Schedule, check_apart, check_sizes, place
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run, in_turn

NAME = "interleaved-1f1b"


def interleaved_one_f_one_b(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Stage s is on IPU s % P, so that a micro-batch visits each of the P IPUs several times.

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
    check_sizes(stages, micro_batches, training)
    placed = place(stages, _two_each(stages) if ipus is None else ipus)
    period = len(set(placed))
    if stages % period or placed != placed[:period] * (stages // period):
        raise ScheduleError(
            f"the {NAME} schedule of {stages} stages on the IPUs {placed}: they must repeat, "
            "each of them with the same number of stages",
            fix="put stage s on IPU s % P, for a P that divides the number of stages",
        )
    what = f"the {NAME} schedule on the IPUs {placed[:period]}: some are in several sets"
    check_apart(placed[:period], what, fix="use sets without a common IPU")
    if period == stages:
        return one_f_one_b(stages, micro_batches, training=training, ipus=placed)
    check_multiple(NAME, micro_batches, period)
    orders: dict[int, list[Run]] = {}
    for rank, group in enumerate(placed[:period]):
        order = _order(rank, period, stages, micro_batches, training)
        orders.update(dict.fromkeys(group, order))
    return arranged(NAME, orders, placed, micro_batches, training)


def _two_each(stages: int) -> list[int]:
    if stages % 2:
        raise ScheduleError(
            f"the {NAME} schedule of {stages} stages, two on each IPU",
            fix="use an even number of stages, or say with `ipus` which of them share an IPU",
        )
    return [stage % (stages // 2) for stage in range(stages)]


def _order(rank: int, period: int, stages: int, micro_batches: int, training: bool) -> list[Run]:
    """What the IPUs number `rank` of `period` run."""

    def task(phase: Phase, number: int) -> Task:
        # `period` micro-batches pass all stages before the next `period` do.
        sets, within = divmod(number, stages)
        turn, member = divmod(within, period)
        stage = rank + turn * period
        if phase == Phase.BACKWARD:
            stage = stages - period + 2 * rank - stage
        return Task(stage, phase, sets * period + member)

    length = stages * (micro_batches // period)
    lags, warm_up = {Phase.FORWARD: 0}, 0
    if training:
        # Before its first backward task comes back, an IPU runs all but its last stage on a first
        # set of micro-batches, and two more tasks for each IPU behind it.
        warm_up = min(length, 2 * (period - 1 - rank) + stages - period)
        lags[Phase.BACKWARD] = warm_up

    def between(first: int, end: int) -> list[Task]:
        rounds = [(i, phase, lag) for i in range(first, end) for phase, lag in lags.items()]
        return [task(phase, i - lag) for i, phase, lag in rounds if 0 <= i - lag < length]

    times, rest = divmod(length - warm_up, stages)
    return [
        in_turn(between(0, warm_up)),
        in_turn(between(warm_up, warm_up + stages), times, period),
        in_turn(between(length - rest, length + warm_up)),
    ]
