"""Schedules from the order of tasks of each IPU: every task as early as possible."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from lowering.schedules.earliest_ticks import place_tasks_earliest
from lowering.schedules.inferred_copies import infer_copies
from lowering.schedules.layout import Layout
from lowering.schedules.needs_table import read_needs
from lowering.schedules.schedule import (
    Ipus,
    Schedule,
    check_pipeline_sizes,
    check_positive_int,
    ipus_of_stages,
)
from lowering.schedules.schedule_errors import ScheduleError, check_instance
from lowering.schedules.task import PHASES_BETWEEN, Groups, Kind, Phase, Task, find_kinds_between
from lowering.schedules.task_progress import Progress
from lowering.schedules.ticks import Run, Ticks, fold_repeated_ticks, one_task_per_tick

# Tasks in any form that `Task.of` accepts.
Orders = Iterable[Iterable[Any]] | Mapping[int, Iterable[Any]]


def from_orders(
    name: str,
    orders: Orders,
    *,
    stages: int,
    micro_batches: int,
    training: bool = True,
    ipus: Ipus = None,
    segments: int = 1,
    needs: Mapping[str, Iterable[str]] | None = None,
) -> Schedule:
    """Places each task in the earliest tick that its IPU's order and its inputs allow.

    Every task takes one tick, an IPU runs one task in a tick, and results of a tick can be
    used from the next one on.

    Args:
      name: the schedule's name.
      orders: the tasks of each IPU: by IPU, or one order after the other in ascending order of
        IPUs. A task of a stage with several IPUs is in the order of each of them. An order that
        is too long is not read to its end. A stage has tasks W, R, or O and L for every
        micro-batch or for none; W are in all stages or in none. Micro-batches whose stages are
        listed on other IPUs than `ipus` pass through copies of the stages there:
        `Schedule.copies`.
      stages: the forward stages.
      micro_batches: how many there are.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.
      segments: how many micro-batches, one after the other, are parts of one sequence; see
        `Schedule.segments`.
      needs: what tasks wait for on other stages, of the same micro-batch, if that is not the stage
        before or after: `{"2F": ["0F"], "3F": ["1F", "2F"]}` is a pipeline of two branches.
        Gradients come back the way that results went, unless an entry as `"1B": ["2B"]` says
        otherwise. `Schedule.needs` gives all that a task waits for.

    Raises:
      ScheduleError: a task that is missing, unknown, twice there or with the wrong IPU; or orders
        in which IPUs wait for one another.
    """
    check_instance(name, str, "the name of a schedule")
    check_pipeline_sizes(stages, micro_batches, training)
    check_positive_int(segments, "{} segments of a sequence", micro_batches)
    needs_table = read_needs(needs, stages)
    stage_ipus = ipus_of_stages(stages, ipus)
    phases = tuple(Phase) if training else (Phase.FORWARD,)
    kinds = [(phase, stage) for phase in phases for stage in range(stages)]
    tasks: dict[int, list[Task]] = {}
    progress_of_ipu: dict[int, Progress[Kind]] = {}
    for ipu, order in _orders_by_ipu(name, orders, stage_ipus).items():
        tasks[ipu], progress_of_ipu[ipu] = _read_order(name, ipu, order, kinds, micro_batches)
    runs = {
        ipu: fold_repeated_ticks([(task,) for task in order]).runs for ipu, order in tasks.items()
    }
    own_stages = {
        ipu: {stage for stage, group in enumerate(stage_ipus) if ipu in group} for ipu in tasks
    }
    listed_kinds = {(task.phase, task.stage) for order in tasks.values() for task in order}
    between = find_kinds_between(listed_kinds)
    if any(task.stage not in own_stages[ipu] for ipu, order in tasks.items() for task in order):
        layout = infer_copies(name, tasks, stage_ipus, micro_batches, between)
    else:
        needed = _kinds_needed(listed_kinds, between, kinds)
        _check_all_tasks_listed(name, progress_of_ipu, own_stages, micro_batches, needed)
        layout = Layout(micro_batches=micro_batches, copies=(stage_ipus,))
    layout = dc.replace(layout, segments=segments, between=between, needs_table=needs_table)
    return schedule_layout(name, runs, layout, training)


def schedule_orders(
    name: str, orders: Mapping[int, Sequence[Run]], ipus: Groups, micro_batches: int, training: bool
) -> Schedule:
    """Builds the schedule of orders that have every task once, one in each tick."""
    layout = Layout(micro_batches=micro_batches, copies=(ipus,))
    return schedule_layout(name, orders, layout, training)


def schedule_layout(
    name: str, orders: Mapping[int, Sequence[Run]], layout: Layout, training: bool
) -> Schedule:
    """Builds the schedule of orders whose stages may have copies, or whose inputs segments."""
    return Schedule(
        name=name,
        stages=layout.stages,
        micro_batches=layout.micro_batches,
        training=training,
        ipus=layout.copies[0],
        ticks=place_tasks_earliest(
            name, {ipu: Ticks(runs) for ipu, runs in orders.items()}, layout
        ),
        copies=layout.copies,
        copy_pattern=layout.copy_pattern,
        segments=layout.segments,
        needs_table=layout.needs_table,
    )


def build_staggered_order(lags: Mapping[tuple[int, Phase], int], micro_batches: int) -> list[Run]:
    """Builds an IPU's order that takes micro-batches in turn, some phases later than others.

    Args:
      lags: the rounds by which each stage's phase is behind; a round has a task of each of those
        that are not over, in this order.
      micro_batches: how many there are.
    """
    bounds = sorted({lag + end for lag in lags.values() for end in (0, micro_batches)})
    return [
        one_task_per_tick(
            [Task(*p, first - lag) for p, lag in lags.items() if 0 <= first - lag < micro_batches],
            last - first,
            1,
        )
        for first, last in itertools.pairwise(bounds)
    ]


def _orders_by_ipu(name: str, orders: Orders, ipus: Groups) -> dict[int, Iterable[Any]]:
    used = sorted({ipu for group in ipus for ipu in group})
    if isinstance(orders, Mapping):
        by_ipu = cast(Mapping[int, Iterable[Any]], orders)
        if sorted(by_ipu) != used:
            raise ScheduleError(
                f"{name}: orders for the IPUs {sorted(by_ipu)}, stages on {used}",
                fix="give one order for every IPU that has a stage",
            )
        return {ipu: by_ipu[ipu] for ipu in used}
    check_instance(orders, Iterable, "the argument `orders`")
    try:
        order_list = list(itertools.islice(orders, len(used) + 1))
    except RuntimeError as error:  # of a deleted array
        raise ScheduleError(f"{name}: no orders can be read: {error}", fix="give lists") from None
    for order in order_list:
        check_instance(order, Iterable, "the order of an IPU")
    if len(order_list) != len(used):
        count = len(order_list) if len(order_list) < len(used) else f"more than {len(used)}"
        raise ScheduleError(
            f"{name}: {count} orders for the {len(used)} IPUs {used}",
            fix="give one order for every IPU that has a stage",
        )
    return dict(zip(used, order_list, strict=True))


def _read_order(
    name: str, ipu: int, order: Iterable[Any], kinds: Iterable[Kind], micro_batches: int
) -> tuple[list[Task], Progress[Kind]]:
    """Reads the tasks of one IPU, and records which ones they are.

    Nothing is read after a task that does not exist, or that the IPU has had: an order may be
    endless.
    """
    progress = Progress(kinds)
    tasks: list[Task] = []
    for item in order:
        task = Task.of(item)
        kind, micro_batch = (task.phase, task.stage), task.micro_batch
        if kind not in progress.count or not 0 <= micro_batch < micro_batches:
            raise ScheduleError(
                f"{name}: {task} in the order of IPU {ipu} is no task of this IPU, at position "
                f"{len(tasks)} from 0",
                fix="keep to the phases, stages and micro-batches that the IPU has",
            )
        if progress.is_recorded(kind, micro_batch):
            raise ScheduleError(
                f"{name}: {task} is twice in the order of IPU {ipu}, at positions "
                f"{tasks.index(task)} and {len(tasks)} from 0",
                fix="list every task once; the second may stand where another one should",
            )
        progress.record_task(kind, micro_batch)
        tasks.append(task)
    return tasks, progress


def _kinds_needed(
    listed_kinds: Collection[Kind], between: Collection[Kind], kinds: Iterable[Kind]
) -> set[Kind]:
    """Returns the kinds that orders must have for every micro-batch.

    Without any weight gradients none is needed, nor is R, O or L in a stage that has none.
    """
    splits = any(phase == Phase.WEIGHTS for phase, _ in listed_kinds)
    optional = {*PHASES_BETWEEN, *(() if splits else (Phase.WEIGHTS,))}
    return {kind for kind in kinds if kind in between or kind[0] not in optional}


def _check_all_tasks_listed(
    name: str,
    progress_of_ipu: Mapping[int, Progress[Kind]],
    own_stages: Mapping[int, Collection[int]],
    micro_batches: int,
    needed: Collection[Kind],
) -> None:
    """Raises if an order lacks a task of the needed kinds."""
    for ipu, progress in progress_of_ipu.items():
        for (phase, stage), count in progress.count.items():
            is_needed = stage in own_stages[ipu] and (phase, stage) in needed
            if count < micro_batches and is_needed:
                raise ScheduleError(
                    f"{name}: {Task(stage, phase, count)} is missing in the order of IPU {ipu}",
                    fix="list every task of the IPU's stages once"
                    + (f", or none of {phase}" if phase in PHASES_BETWEEN else ""),
                )
