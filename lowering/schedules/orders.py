"""Schedules from what each IPU runs, in order: every task as early as it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from lowering.schedules.errors import ScheduleError
from lowering.schedules.grid import draw
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Phase, Task, needs

Orders = Sequence[Sequence[Task]] | Mapping[int, Sequence[Task]]

# The order in which the tasks of a tick are dispatched: what frees memory before what fills it.
_DISPATCH = (Phase.BACKWARD, Phase.WEIGHTS, Phase.FORWARD)
_NO_TASK = Task(-1, Phase.FORWARD, -1)
_SHOWN = 8  # ticks before a deadlock, and IPUs stuck in it, that the message shows


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
      orders: the tasks of each IPU: by IPU, or a sequence in ascending order of IPUs. A task of a
        stage with several IPUs is in the order of each of them.
      stages: the forward stages.
      micro_batches: how many there are.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.

    Raises:
      ScheduleError: a task that is missing, unknown, twice there or with the wrong IPU; or orders
        in which IPUs wait for one another.
    """
    check_sizes(stages, micro_batches)
    placed = place(stages, ipus)
    by_ipu = _by_ipu(name, orders, placed)
    tasks = _complete(name, by_ipu, placed, micro_batches, training)
    tick_of = _place(name, by_ipu, placed, micro_batches)
    ticks: list[list[Task]] = [
        [] for _ in range(1 + max(max(row) for rows in tick_of.values() for row in rows))
    ]
    for phase in _DISPATCH:
        for stage in range(stages)[:: -1 if phase == Phase.FORWARD else 1]:
            for task, tick in zip(tasks[phase][stage], tick_of[phase][stage], strict=False):
                ticks[tick].append(task)
    return Schedule(
        name=name,
        stages=stages,
        micro_batches=micro_batches,
        training=training,
        ipus=placed,
        ticks=tuple(map(tuple, ticks)),
    )


def _by_ipu(
    name: str, orders: Orders, ipus: Sequence[tuple[int, ...]]
) -> dict[int, Sequence[Task]]:
    used = sorted({ipu for group in ipus for ipu in group})
    if isinstance(orders, Mapping):
        if sorted(orders) != used:
            raise ScheduleError(
                f"{name}: orders for the IPUs {sorted(orders)}, stages on {used}",
                fix="give one order for every IPU that has a stage",
            )
        return {ipu: orders[ipu] for ipu in used}
    if len(orders) != len(used):
        raise ScheduleError(
            f"{name}: {len(orders)} orders for the {len(used)} IPUs {used}",
            fix="give one order for every IPU that has a stage",
        )
    return dict(zip(used, orders, strict=True))


def _complete(
    name: str,
    by_ipu: Mapping[int, Sequence[Task]],
    ipus: Sequence[tuple[int, ...]],
    micro_batches: int,
    training: bool,
) -> dict[Phase, list[list[Task]]]:
    """The tasks by phase, stage and micro-batch; raises unless each is there, and once."""
    splits = any(task.phase == Phase.WEIGHTS for order in by_ipu.values() for task in order)
    phases = [Phase.FORWARD]
    if training:
        phases += [Phase.BACKWARD, Phase.WEIGHTS] if splits else [Phase.BACKWARD]
    tasks: dict[Phase, list[list[Task]]] = {phase: [[] for _ in ipus] for phase in Phase}
    for ipu, order in by_ipu.items():
        own = [stage for stage, group in enumerate(ipus) if ipu in group]
        rows = {phase: {stage: [_NO_TASK] * micro_batches for stage in own} for phase in phases}
        for task in order:
            stage, phase, micro_batch = task
            try:
                row = rows[phase][stage]
                if row[micro_batch] is not _NO_TASK or micro_batch < 0:
                    _fail_unexpected(name, ipu, task, task in row)
            except (KeyError, IndexError):
                _fail_unexpected(name, ipu, task, False)
            row[micro_batch] = task
        for phase in phases:
            for stage, row in rows[phase].items():
                if _NO_TASK in row:
                    missing = Task(stage, phase, row.index(_NO_TASK))
                    raise ScheduleError(
                        f"{name}: {missing} is missing in the order of IPU {ipu}",
                        fix="list every task of the IPU's stages once",
                    )
                tasks[phase][stage] = row
    return tasks


def _fail_unexpected(name: str, ipu: int, task: Task, twice: bool) -> NoReturn:
    if twice:
        raise ScheduleError(
            f"{name}: {task} is twice in the order of IPU {ipu}", fix="list every task once"
        )
    raise ScheduleError(
        f"{name}: {task} in the order of IPU {ipu} is no task of this IPU",
        fix="keep to the phases, stages and micro-batches that the IPU has",
    )


def _place(
    name: str,
    by_ipu: Mapping[int, Sequence[Task]],
    ipus: Sequence[tuple[int, ...]],
    micro_batches: int,
) -> dict[Phase, list[list[int]]]:
    """The tick of every task, by phase, stage and micro-batch; -1 for tasks there are none of."""
    stages = len(ipus)
    tick_of = {phase: [[-1] * micro_batches for _ in range(stages)] for phase in Phase}
    inputs = {
        phase: [
            [(*kind, tick_of[kind[0]][kind[1]]) for kind in needs(phase, stage, stages)]
            for stage in range(stages)
        ]
        for phase in Phase
    }
    heads, free = dict.fromkeys(by_ipu, 0), dict.fromkeys(by_ipu, 0)
    ends = {ipu: len(order) for ipu, order in by_ipu.items()}
    waiting: dict[tuple[int, Phase, int], list[int]] = {}
    awake = list(by_ipu)
    while awake:
        ipu = awake.pop()
        order = by_ipu[ipu]
        while heads[ipu] < ends[ipu]:
            task = stage, phase, micro_batch = order[heads[ipu]]
            tick = free[ipu]
            for other_phase, other_stage, made in inputs[phase][stage]:
                before = made[micro_batch]
                if before < 0:
                    other = (other_stage, other_phase, micro_batch)
                    waiting.setdefault(other, []).append(ipu)
                    break
                if before >= tick:
                    tick = before + 1
            else:
                group = ipus[stage]
                if len(group) > 1:
                    # The last of the IPUs to come to the task runs it for all of them.
                    if any(heads[i] == ends[i] or by_ipu[i][heads[i]] != task for i in group):
                        break
                    tick = max(tick, *(free[i] for i in group))
                    awake += [i for i in group if i != ipu]
                for i in group:
                    heads[i] += 1
                    free[i] = tick + 1
                tick_of[phase][stage][micro_batch] = tick
                if task in waiting:
                    awake += waiting.pop(task)
                continue
            break
    if heads != ends:
        _fail_stuck(name, by_ipu, heads, ipus, tick_of)
    return tick_of


def _fail_stuck(
    name: str,
    by_ipu: Mapping[int, Sequence[Task]],
    heads: Mapping[int, int],
    ipus: Sequence[tuple[int, ...]],
    tick_of: dict[Phase, list[list[int]]],
) -> NoReturn:
    """Raises the error of IPUs that wait for one another, with what ran until then."""
    done = [
        (tick_of[task.phase][task.stage][task.micro_batch], task)
        for ipu, order in by_ipu.items()
        for task in order[: heads[ipu]]
        if ipu == ipus[task.stage][0]
    ]
    end = 1 + max((tick for tick, _ in done), default=-1)
    ticks: list[list[Task]] = [[] for _ in range(end + 1)]
    for tick, task in done:
        ticks[tick].append(task)
    stuck = {ipu: order[heads[ipu]] for ipu, order in by_ipu.items() if heads[ipu] < len(order)}
    waits: list[str] = []
    for ipu, task in stuck.items():
        if task not in ticks[end]:
            ticks[end].append(task)
        missing = [
            str(Task(stage, phase, task.micro_batch))
            for phase, stage in needs(task.phase, task.stage, len(ipus))
            if tick_of[phase][stage][task.micro_batch] < 0
        ]
        partners = [f"IPU {i}" for i in ipus[task.stage] if stuck.get(i) != task]
        waits.append(f"{task} on IPU {ipu} waits for {' and '.join(missing or partners)}")
    more = len(waits) - _SHOWN
    listed = "; ".join(waits[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    marked = [(end, task) for task in ticks[end]]
    raise ScheduleError(
        f"{name}: deadlock after {end} ticks: {listed}",
        grid=draw(ipus, ticks, max(0, end - _SHOWN), end + 1, marked),
        fix="put what is waited for (`>` marks who waits) earlier in the order of its IPU",
    )
