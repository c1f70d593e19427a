"""1F1B with several stages on an IPU, dealt out in turn (Narayanan et al., arXiv 2104.04473)."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.schedules.errors import ScheduleError
from lowering.schedules.one_f_one_b import one_f_one_b
from lowering.schedules.orders import from_orders
from lowering.schedules.rotations import check_multiple
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place, shared_ipu
from lowering.schedules.task import Phase, Task

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
    check_sizes(stages, micro_batches)
    placed = place(stages, _two_each(stages) if ipus is None else ipus)
    period = len(set(placed))
    if stages % period or placed != placed[:period] * (stages // period):
        raise ScheduleError(
            f"the {NAME} schedule of {stages} stages on the IPUs {placed}: they must repeat, "
            "each of them with the same number of stages",
            fix="put stage s on IPU s % P, for a P that divides the number of stages",
        )
    if shared_ipu(placed[:period]):
        raise ScheduleError(
            f"the {NAME} schedule on the IPUs {placed[:period]}: some are in several sets",
            fix="use sets without a common IPU",
        )
    if period == stages:
        return one_f_one_b(stages, micro_batches, training=training, ipus=placed)
    check_multiple(NAME, micro_batches, period)
    orders: dict[int, Sequence[Task]] = {}
    for rank in range(period):
        order = _order(rank, period, stages, micro_batches, training)
        orders.update(dict.fromkeys(placed[rank], order))
    return from_orders(
        NAME,
        orders,
        stages=stages,
        micro_batches=micro_batches,
        training=training,
        ipus=placed,
    )


def _two_each(stages: int) -> list[int]:
    if stages % 2:
        raise ScheduleError(
            f"the {NAME} schedule of {stages} stages, two on each IPU",
            fix="use an even number of stages, or say with `ipus` which of them share an IPU",
        )
    return [stage % (stages // 2) for stage in range(stages)]


def _order(rank: int, period: int, stages: int, micro_batches: int, training: bool) -> list[Task]:
    """What the IPUs number `rank` of `period` run."""
    forward: list[Task] = []
    backward: list[Task] = []
    # `period` micro-batches pass all stages before the next `period` do.
    for first in range(0, micro_batches, period):
        for stage in range(rank, stages, period):
            last_first = stages - period + 2 * rank - stage
            for i in range(first, first + period):
                forward.append(Task(stage, Phase.FORWARD, i))
                backward.append(Task(last_first, Phase.BACKWARD, i))
    if not training:
        return forward
    # Before its first backward task comes back, an IPU runs all but its last stage on a first set
    # of micro-batches, and two more tasks for each IPU behind it.
    warm_up = min(len(forward), 2 * (period - 1 - rank) + stages - period)
    order = forward[:warm_up]
    for ahead, behind in zip(forward[warm_up:], backward, strict=False):
        order += (ahead, behind)
    return order + backward[len(forward) - warm_up :]
