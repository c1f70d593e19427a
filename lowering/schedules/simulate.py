"""A dry run of a schedule: whether a pipeline can follow it, and what it costs."""

from __future__ import annotations

import dataclasses as dc
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from lowering.errors import InternalError
from lowering.public import lists
from lowering.schedules.clocks import end_of
from lowering.schedules.errors import ScheduleError, check_is
from lowering.schedules.grid import draw
from lowering.schedules.progress import Kind, Progress
from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Phase, Task, needs
from lowering.schedules.ticks import Run, Tick, runs_of

# How long a task of each phase takes: one number, or one for every stage.
Seconds = Mapping[Phase, float | Sequence[float]]

_AROUND = 4  # ticks before and after a mistake that its message shows


@lists()
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
    check_is(schedule, Schedule, "what `simulate` simulates")
    kinds = phases(schedule)
    in_flight = _check(schedule, kinds)
    durations, units = _durations(schedule, kinds, seconds)
    synced, busy = _synced(schedule, durations)
    makespan = end_of(schedule, durations)
    num_ipus = len({ipu for group in schedule.ipus for ipu in group})
    return Simulation(
        ticks=len(schedule.ticks),
        tasks=schedule.num_tasks,
        in_flight=in_flight,
        fifo_depth=tuple(count - 1 for count in in_flight),
        bubble=bubble(schedule),
        makespan=makespan / units,
        synced_makespan=synced / units,
        utilisation=busy / (num_ipus * makespan) if makespan else 1.0,
    )


def phases(schedule: Schedule) -> tuple[Phase, ...]:
    """The phases that every stage of the schedule has."""
    if not schedule.training:
        return (Phase.FORWARD,)
    return tuple(Phase) if schedule.splits_backward else (Phase.FORWARD, Phase.BACKWARD)


def _check(schedule: Schedule, kinds: Sequence[Phase], *, skips: bool = True) -> tuple[int, ...]:
    """Raises at the first task in a wrong place; gives the micro-batches in flight per stage.

    Rounds of a run that do what the one before did, for later micro-batches, are skipped up to the
    last: what they read of tasks outside of the run is there if it is there for the last one.
    """
    checker, tick = _Checker(schedule, kinds), 0
    try:
        for run in runs_of(schedule.ticks):
            number = 0
            while number < run.times:
                before = checker.done.in_order()
                for tasks in run.round(number):
                    checker.run(tick, tasks)
                    tick += 1
                number += 1
                more = run.times - 1 - number
                if skips and more > 0 and checker.skip(before, run, more):
                    number += more
                    tick += more * len(run.ticks)
        checker.finish()
    except ScheduleError:
        if skips:  # to name the first mistake, and not that of a last round
            _check(schedule, kinds, skips=False)
        raise
    return tuple(checker.most) if schedule.training else (1,) * schedule.stages


class _Checker:
    """What has run, tick by tick.

    Attributes:
      done: which tasks.
      most: for each stage, the most micro-batches that were in flight so far.
    """

    def __init__(self, schedule: Schedule, kinds: Sequence[Phase]):
        self.schedule = schedule
        self.first, self.last = kinds[0], kinds[-1]
        every = [(phase, stage) for phase in kinds for stage in range(schedule.stages)]
        self.done = Progress(every)
        self.inputs = {kind: needs(*kind, schedule.stages) for kind in every}
        self.most = [0] * schedule.stages

    def run(self, tick: int, tasks: Tick) -> None:
        """Runs the tasks of a tick."""
        here: set[tuple[Kind, int]] = set()
        ipus = self.schedule.ipus
        for task in tasks:
            stage, phase, micro_batch = task
            kind = (phase, stage)
            known = kind in self.inputs and 0 <= micro_batch < self.schedule.micro_batches
            if not known or self.done.has(kind, micro_batch):
                _fail_unknown(self.schedule, tick, task)
            for other in self.inputs[kind]:
                late = (other, micro_batch) in here and ipus[other[1]] != ipus[stage]
                if late or not self.done.has(other, micro_batch):
                    _fail_early(self.schedule, tick, task)
            self.done.add(kind, micro_batch)
            here.add((kind, micro_batch))
            if phase == self.first:
                in_flight = self.done.number(kind) - self.done.number((self.last, stage))
                self.most[stage] = max(self.most[stage], in_flight)

    def skip(self, before: Mapping[Kind, int] | None, run: Run, rounds: int) -> bool:
        """Runs more rounds at once, if that after `before` was a round like those to come."""
        now = self.done.in_order()
        if before is None or now is None:
            return False
        steps = {kind: now[kind] - count for kind, count in before.items()}
        if any(step not in (0, run.step) for step in steps.values()):
            return False
        self.done.skip({kind: step * rounds for kind, step in steps.items()})
        return True

    def finish(self) -> None:
        """Raises if some task has not run."""
        for (phase, stage), count in self.done.count.items():
            if count < self.schedule.micro_batches:
                _fail_missing(self.schedule, Task(stage, phase, count))


def _fail_unknown(schedule: Schedule, tick: int, task: Task) -> NoReturn:
    before = next((i for i in range(tick) if task in schedule.ticks[i]), None)
    if before is None and schedule.ticks[tick].count(task) > 1:
        before = tick
    if before is not None:
        what = f"tick {tick} runs {task} again after tick {before}"
        _fail(schedule, what, "run every task once", tick, task)
    kind = "training" if schedule.training else "inference"
    what = (
        f"tick {tick} runs {task}, which {kind} with {schedule.stages} stages and "
        f"{schedule.micro_batches} micro-batches does not have"
    )
    _fail(schedule, what, "leave it out, or give the schedule other numbers", tick, task)


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
    what = f"{task} in tick {tick} needs {problem}"
    _fail(schedule, what, f"run {task} in a tick after {other}", tick, task)


def _fail_missing(schedule: Schedule, task: Task) -> NoReturn:
    # Drawn where its micro-batch is last seen on the stage: it should have come after that.
    seen = [
        tick
        for tick, tasks in enumerate(schedule.ticks)
        if any(t.stage == task.stage and t.micro_batch == task.micro_batch for t in tasks)
    ]
    tick = seen[-1] if seen else max(0, len(schedule.ticks) - 1)
    _fail(schedule, f"{task} never runs", "run every task once", tick)


def _fail(schedule: Schedule, what: str, fix: str, tick: int, *marked: Task) -> NoReturn:
    """Raises the error of a tick, with what is around it and tasks that are marked drawn."""
    first, last = max(0, tick - _AROUND), min(len(schedule.ticks), tick + _AROUND + 1)
    grid = draw(schedule.ipus, schedule.ticks, first, last, [(tick, task) for task in marked])
    raise ScheduleError(f"{schedule.name}: {what}", grid=grid, fix=fix)


def bubble(schedule: Schedule) -> float:
    """The idle share; a task on several IPUs counts once on each."""
    most = {ipu: 0 for group in schedule.ipus for ipu in group}
    total = 0
    for run in runs_of(schedule.ticks):
        for tasks in run.ticks:
            count = Counter(ipu for task in tasks for ipu in schedule.ipus[task.stage])
            total += count.total() * run.times
            for ipu, together in count.items():
                most[ipu] = max(most[ipu], together)
    return 1 - total / (sum(most.values()) * len(schedule.ticks))


def _durations(
    schedule: Schedule, kinds: Sequence[Phase], seconds: Seconds | None
) -> tuple[dict[Kind, int], int]:
    """How long a task of each kind takes, in a unit in which all are ints; and units per second.

    Sums of ints are exact, so what is skipped gives what running it would have given.
    """
    if seconds is None:
        return {(phase, stage): 1 for phase in kinds for stage in range(schedule.stages)}, 1
    check_is(seconds, Mapping, "`seconds`")
    exact: dict[Kind, Fraction] = {}
    for phase in kinds:
        length = seconds.get(phase)
        if length is None:
            raise ScheduleError(
                f"`seconds` says nothing of {phase.name}", fix="give every phase a duration"
            )
        row: list[float] = [*length] if isinstance(length, Sequence) else [length] * schedule.stages
        if len(row) != schedule.stages or not all(0 <= value < math.inf for value in row):
            raise ScheduleError(
                f"`seconds` for {phase.name}: {length}",
                fix=f"give one duration, or {schedule.stages}, finite and none of them negative",
            )
        exact |= {(phase, stage): Fraction(float(value)) for stage, value in enumerate(row)}
    units = math.lcm(*(duration.denominator for duration in exact.values()))
    return {kind: int(duration * units) for kind, duration in exact.items()}, units


def _synced(schedule: Schedule, durations: Mapping[Kind, int]) -> tuple[int, int]:
    """The makespan with a sync after every tick, and the work of all IPUs together."""
    synced = busy = 0
    for run in runs_of(schedule.ticks):
        for tasks in run.ticks:
            clock: dict[int, int] = {}  # since the sync; inputs of other IPUs were there by then
            for stage, phase, _ in tasks:
                group, duration = schedule.ipus[stage], durations[phase, stage]
                finish = max(clock.get(ipu, 0) for ipu in group) + duration
                clock.update(dict.fromkeys(group, finish))
                busy += duration * len(group) * run.times
            synced += max(clock.values(), default=0) * run.times
    return synced, busy
