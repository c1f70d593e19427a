"""Schedules from what each IPU runs, in order: every task as early as it can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from lowering.schedules.errors import ScheduleError, check_is
from lowering.schedules.placing import earliest
from lowering.schedules.progress import Kind, Progress
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Groups, Phase, Task
from lowering.schedules.ticks import Run, Ticks, folded, in_turn

# Tasks as `Task.of` takes them.
Orders = Iterable[Iterable[Any]] | Mapping[int, Iterable[Any]]


def from_orders(
    name: str,
    orders: Orders,
    *,
    stages: int,
    micro_batches: int,
    training: bool = True,
    ipus: Ipus = None,
) -> Schedule:
    """Places each task in the earliest tick that its IPU's order and its inputs allow.

    Every task takes one tick, an IPU runs one task in a tick, and what is made in a tick can be
    used from the next one on.

    Args:
      name: the schedule's name.
      orders: the tasks of each IPU: by IPU, or one order after the other in ascending order of
        IPUs. A task of a stage with several IPUs is in the order of each of them. What is too
        long is not read to its end.
      stages: the forward stages.
      micro_batches: how many there are.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.

    Raises:
      ScheduleError: a task that is missing, unknown, twice there or with the wrong IPU; or orders
        in which IPUs wait for one another.
    """
    check_is(name, str, "the name of a schedule")
    check_sizes(stages, micro_batches, training)
    placed = place(stages, ipus)
    phases = tuple(Phase) if training else (Phase.FORWARD,)
    runs: dict[int, Sequence[Run]] = {}
    seen: dict[int, Progress] = {}
    for ipu, order in _by_ipu(name, orders, placed).items():
        here = [stage for stage, group in enumerate(placed) if ipu in group]
        kinds = [(phase, stage) for phase in phases for stage in here]
        tasks, seen[ipu] = _read(name, ipu, order, kinds, micro_batches)
        runs[ipu] = folded([(task,) for task in tasks]).runs
    _check_complete(name, seen, micro_batches)
    return arranged(name, runs, placed, micro_batches, training)


def arranged(
    name: str, orders: Mapping[int, Sequence[Run]], ipus: Groups, micro_batches: int, training: bool
) -> Schedule:
    """As `from_orders`, of orders that have every task once, one in each tick."""
    return Schedule(
        name=name,
        stages=len(ipus),
        micro_batches=micro_batches,
        training=training,
        ipus=ipus,
        ticks=earliest(name, {ipu: Ticks(runs) for ipu, runs in orders.items()}, ipus),
    )


def staggered(lags: Mapping[tuple[int, Phase], int], micro_batches: int) -> list[Run]:
    """What an IPU runs that takes the micro-batches in order, in some phases later than in others.

    Args:
      lags: by how many rounds each stage's phase is behind; in a round, a task of each of those
        that are not over, in this order.
      micro_batches: how many there are.
    """
    bounds = sorted({lag + end for lag in lags.values() for end in (0, micro_batches)})
    return [
        in_turn(
            [Task(*p, first - lag) for p, lag in lags.items() if 0 <= first - lag < micro_batches],
            last - first,
            1,
        )
        for first, last in itertools.pairwise(bounds)
    ]


def _by_ipu(name: str, orders: Orders, ipus: Groups) -> dict[int, Iterable[Any]]:
    used = sorted({ipu for group in ipus for ipu in group})
    if isinstance(orders, Mapping):
        by_ipu = cast(Mapping[int, Iterable[Any]], orders)
        if sorted(by_ipu) != used:
            raise ScheduleError(
                f"{name}: orders for the IPUs {sorted(by_ipu)}, stages on {used}",
                fix="give one order for every IPU that has a stage",
            )
        return {ipu: by_ipu[ipu] for ipu in used}
    check_is(orders, Iterable, "what gives the orders")
    try:
        listed = list(itertools.islice(orders, len(used) + 1))
    except RuntimeError as error:  # of a deleted array
        raise ScheduleError(f"{name}: no orders can be read: {error}", fix="give lists") from None
    for order in listed:
        check_is(order, Iterable, "the order of an IPU")
    if len(listed) != len(used):
        count = len(listed) if len(listed) < len(used) else f"more than {len(used)}"
        raise ScheduleError(
            f"{name}: {count} orders for the {len(used)} IPUs {used}",
            fix="give one order for every IPU that has a stage",
        )
    return dict(zip(used, listed, strict=True))


def _read(
    name: str, ipu: int, order: Iterable[Any], kinds: Iterable[Kind], micro_batches: int
) -> tuple[list[Task], Progress]:
    """The tasks of one IPU, and which ones they are.

    Nothing is read after a task that the IPU does not have, or has had: an order may be endless.
    """
    seen = Progress(kinds)
    tasks: list[Task] = []
    for item in order:
        task = Task.of(item)
        kind, micro_batch = (task.phase, task.stage), task.micro_batch
        if kind not in seen.count or not 0 <= micro_batch < micro_batches:
            raise ScheduleError(
                f"{name}: {task} in the order of IPU {ipu} is no task of this IPU",
                fix="keep to the phases, stages and micro-batches that the IPU has",
            )
        if seen.has(kind, micro_batch):
            raise ScheduleError(
                f"{name}: {task} is twice in the order of IPU {ipu}", fix="list every task once"
            )
        seen.add(kind, micro_batch)
        tasks.append(task)
    return tasks, seen


def _check_complete(name: str, seen: Mapping[int, Progress], micro_batches: int) -> None:
    """Refuses orders that lack a task; those without any for gradients of weights need none."""
    splits = any(
        progress.number(kind)
        for progress in seen.values()
        for kind in progress.count
        if kind[0] == Phase.WEIGHTS
    )
    for ipu, progress in seen.items():
        for (phase, stage), count in progress.count.items():
            if count < micro_batches and (splits or phase != Phase.WEIGHTS):
                raise ScheduleError(
                    f"{name}: {Task(stage, phase, count)} is missing in the order of IPU {ipu}",
                    fix="list every task of the IPU's stages once",
                )
