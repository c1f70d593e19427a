"""A dry run of a schedule: whether a pipeline can follow it, and what it costs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import NoReturn

from lowering.errors import InternalError
from lowering.schedules.errors import ScheduleError
from lowering.schedules.grid import draw
from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Phase, Task, needs

# How long a task of each phase takes: one number, or one for every stage.
Seconds = Mapping[Phase, float | Sequence[float]]

_AROUND = 4  # ticks before and after a mistake that its message shows


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a schedule costs.

    Attributes:
      ticks: the number of ticks, empty ones included.
      tasks: the number of tasks.
      in_flight: for each stage, the most micro-batches at once whose forward task has run and
        the last of whose gradients has not been made. 1 for inference, which keeps nothing.
      fifo_depth: for each stage, how many of these wait beside the one at work.
      bubble: the idle share of the grid of IPUs and ticks, where a tick of an IPU has room for as
        many tasks as the IPU ever runs in one; between 0 and 1.
      makespan: the time from first to last when every task starts as soon as its IPUs and inputs
        are there, without syncs; seconds, or tasks if there were no seconds.
      synced_makespan: the same when each tick begins after the slowest IPU of the one before.
      utilisation: the share of the makespan in which an IPU works, averaged over the IPUs.
    """

    ticks: int
    tasks: int
    in_flight: tuple[int, ...]
    fifo_depth: tuple[int, ...]
    bubble: float
    makespan: float
    synced_makespan: float
    utilisation: float


def simulate(schedule: Schedule, seconds: Seconds | None = None) -> Simulation:
    """Runs a schedule without computing anything.

    Args:
      schedule: the schedule.
      seconds: how long the tasks of each phase take; without it, each takes 1.

    Raises:
      ScheduleError: a task that is missing, unknown, there twice, or before what it needs; with
        the place drawn. Durations that are missing or negative.
    """
    kinds = phases(schedule)
    in_flight = _check(schedule, kinds)
    durations = _durations(schedule, kinds, seconds)
    makespan, synced, busy = _times(schedule, durations)
    num_ipus = len({ipu for group in schedule.ipus for ipu in group})
    return Simulation(
        ticks=len(schedule.ticks),
        tasks=schedule.num_tasks,
        in_flight=in_flight,
        fifo_depth=tuple(count - 1 for count in in_flight),
        bubble=_bubble(schedule),
        makespan=makespan,
        synced_makespan=synced,
        utilisation=busy / (num_ipus * makespan) if makespan else 1.0,
    )


def phases(schedule: Schedule) -> tuple[Phase, ...]:
    """The phases that every stage of the schedule has."""
    if not schedule.training:
        return (Phase.FORWARD,)
    if schedule.splits_backward:
        return (Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHTS)
    return (Phase.FORWARD, Phase.BACKWARD)


def _check(schedule: Schedule, kinds: Sequence[Phase]) -> tuple[int, ...]:
    """Raises at the first task in a wrong place; gives the micro-batches in flight per stage."""
    stages, ipus = schedule.stages, schedule.ipus
    tick_of = {phase: [[-1] * schedule.micro_batches for _ in range(stages)] for phase in kinds}
    inputs = {
        phase: [
            [(tick_of[p][s], ipus[s] == ipus[stage]) for p, s in needs(phase, stage, stages)]
            for stage in range(stages)
        ]
        for phase in kinds
    }
    alive, most = [0] * stages, [0] * stages
    first, last = kinds[0], kinds[-1]
    for tick, tasks in enumerate(schedule.ticks):
        for task in tasks:
            stage, phase, micro_batch = task
            try:
                row = tick_of[phase][stage]
                if row[micro_batch] >= 0 or stage < 0 or micro_batch < 0:
                    _fail_unknown(schedule, tick, task)
            except (KeyError, IndexError):
                _fail_unknown(schedule, tick, task)
            for made, same_ipus in inputs[phase][stage]:
                before = made[micro_batch]
                if before < 0 or (before == tick and not same_ipus):
                    _fail_early(schedule, tick, task)
            row[micro_batch] = tick
            if phase == first:
                alive[stage] += 1
                if alive[stage] > most[stage]:
                    most[stage] = alive[stage]
            elif phase == last:
                alive[stage] -= 1
    for phase in kinds:
        for stage, row in enumerate(tick_of[phase]):
            if -1 in row:
                _fail_missing(schedule, Task(stage, phase, row.index(-1)))
    return tuple(most) if schedule.training else (1,) * stages


def _fail_unknown(schedule: Schedule, tick: int, task: Task) -> NoReturn:
    before = next((i for i in range(tick) if task in schedule.ticks[i]), None)
    if before is None and schedule.ticks[tick].count(task) > 1:
        before = tick
    if before is not None:
        what, fix = f"tick {tick} runs {task} again after tick {before}", "run every task once"
    else:
        kind = "training" if schedule.training else "inference"
        what = (
            f"tick {tick} runs {task}, which {kind} with {schedule.stages} stages and "
            f"{schedule.micro_batches} micro-batches does not have"
        )
        fix = "leave it out, or give the schedule other numbers"
    raise ScheduleError(f"{schedule.name}: {what}", grid=_around(schedule, tick, task), fix=fix)


def _fail_early(schedule: Schedule, tick: int, task: Task) -> NoReturn:
    for phase, stage in needs(task.phase, task.stage, schedule.stages):
        other = Task(stage, phase, task.micro_batch)
        at = next((i for i, tasks in enumerate(schedule.ticks) if other in tasks), None)
        if at is None:
            problem = f"{other}, which never runs"
        elif at > tick:
            problem = f"{other}, which runs in tick {at}"
        elif at == tick and schedule.ticks[tick].index(other) > schedule.ticks[tick].index(task):
            problem = f"{other}, which is dispatched after it"
        elif at == tick and schedule.ipus[stage] != schedule.ipus[task.stage]:
            problem = f"{other}, which other IPUs run in the same tick"
        else:
            continue
        break
    else:
        raise InternalError(f"{schedule.name}: {task} in tick {tick} is not early")
    raise ScheduleError(
        f"{schedule.name}: {task} in tick {tick} needs {problem}",
        grid=_around(schedule, tick, task),
        fix=f"run {task} in a tick after {other}",
    )


def _fail_missing(schedule: Schedule, task: Task) -> NoReturn:
    # Drawn where its micro-batch is last seen on the stage: it should have come after that.
    seen = [
        tick
        for tick, tasks in enumerate(schedule.ticks)
        if any(t.stage == task.stage and t.micro_batch == task.micro_batch for t in tasks)
    ]
    tick = seen[-1] if seen else max(0, len(schedule.ticks) - 1)
    raise ScheduleError(
        f"{schedule.name}: {task} never runs",
        grid=_around(schedule, tick, None),
        fix="run every task once",
    )


def _around(schedule: Schedule, tick: int, task: Task | None) -> str:
    first, last = max(0, tick - _AROUND), min(len(schedule.ticks), tick + _AROUND + 1)
    marked = [] if task is None else [(tick, task)]
    return draw(schedule.ipus, schedule.ticks, first, last, marked)


def _bubble(schedule: Schedule) -> float:
    """The idle share; a task on several IPUs counts once on each."""
    most = {ipu: 0 for group in schedule.ipus for ipu in group}
    count, total = dict(most), 0
    for tasks in schedule.ticks:
        for stage, _, _ in tasks:
            for ipu in schedule.ipus[stage]:
                count[ipu] += 1
        for stage, _, _ in tasks:
            for ipu in schedule.ipus[stage]:
                if count[ipu]:
                    total += count[ipu]
                    if count[ipu] > most[ipu]:
                        most[ipu] = count[ipu]
                    count[ipu] = 0
    return 1 - total / (sum(most.values()) * len(schedule.ticks))


def _durations(
    schedule: Schedule, kinds: Sequence[Phase], seconds: Seconds | None
) -> dict[Phase, list[float]]:
    """The duration of a task of each phase and stage."""
    if seconds is None:
        return {phase: [1.0] * schedule.stages for phase in kinds}
    durations: dict[Phase, list[float]] = {}
    for phase in kinds:
        given = seconds.get(phase)
        if given is None:
            raise ScheduleError(
                f"`seconds` says nothing of {phase.name}", fix="give every phase a duration"
            )
        row: list[float] = [*given] if isinstance(given, Sequence) else [given] * schedule.stages
        if len(row) != schedule.stages or not all(value >= 0 for value in row):
            raise ScheduleError(
                f"`seconds` for {phase.name}: {given}",
                fix=f"give one duration, or {schedule.stages}, none of them negative",
            )
        durations[phase] = row
    return durations


def _times(
    schedule: Schedule, durations: Mapping[Phase, Sequence[float]]
) -> tuple[float, float, float]:
    """The makespan without and with syncs, and the work of all IPUs together."""
    stages, ipus = schedule.stages, schedule.ipus
    done = {phase: [[0.0] * schedule.micro_batches for _ in range(stages)] for phase in durations}
    inputs = {
        phase: [[done[p][s] for p, s in needs(phase, stage, stages)] for stage in range(stages)]
        for phase in durations
    }
    free = {ipu: 0.0 for group in ipus for ipu in group}
    synced = busy = 0.0
    for tasks in schedule.ticks:
        clock: dict[int, float] = {}  # since the sync; inputs of other IPUs were there by then
        for stage, phase, micro_batch in tasks:
            duration = durations[phase][stage]
            finish = 0.0
            for ipu in ipus[stage]:
                if free[ipu] > finish:
                    finish = free[ipu]
            for row in inputs[phase][stage]:
                if row[micro_batch] > finish:
                    finish = row[micro_batch]
            finish += duration
            done[phase][stage][micro_batch] = finish
            synced_finish = 0.0
            for ipu in ipus[stage]:
                free[ipu] = finish
                if clock.get(ipu, 0.0) > synced_finish:
                    synced_finish = clock[ipu]
            synced_finish += duration
            for ipu in ipus[stage]:
                clock[ipu] = synced_finish
            busy += duration * len(ipus[stage])
        synced += max(clock.values(), default=0.0)
    return max(free.values()), synced, busy
