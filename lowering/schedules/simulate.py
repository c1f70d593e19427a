"""A dry run of a schedule that checks whether a pipeline can follow it, and computes its cost."""

from __future__ import annotations

import dataclasses as dc
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from lowering.ground import InternalError, limit_dir_to
from lowering.schedules.bytes_over_time import BytesOverTime, compute_bytes_over_time
from lowering.schedules.clocks import compute_makespan
from lowering.schedules.grid import draw_grid
from lowering.schedules.layout import Row
from lowering.schedules.schedule import Schedule
from lowering.schedules.schedule_errors import ScheduleError, check_instance, repr_or_type
from lowering.schedules.task import Kind, Phase, Task
from lowering.schedules.task_progress import Progress
from lowering.schedules.ticks import Run, Tick, runs_of_ticks

# The duration of a task of each phase: one number, or one for every stage.
Seconds = Mapping[Phase, float | Sequence[float]]

_AROUND = 4  # ticks before and after a mistake that its message shows


@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The cost of a schedule.

    Attributes:
      ticks: the number of ticks, empty ones included.
      tasks: the number of tasks.
      in_flight: for each stage, the most micro-batches at once whose forward task has run and
        the last of whose gradients has not been made. 1 for inference, which keeps nothing.
      in_flight_per_ipu: for each IPU, in ascending order, the most of these at once of all of its
        stages together.
      fifo_depth: for each stage, how many of these wait while one is at work.
      bubble: the idle share of the grid of IPUs and ticks, where a tick of an IPU has room for as
        many tasks as the IPU ever runs in one; between 0 and 1.
      makespan: the time from first to last when every task starts as soon as its IPUs and inputs
        are there, without syncs but with transfers; seconds, or tasks if there were no seconds.
      synced_makespan: the same when each tick begins after the slowest IPU of the one before, and
        transfers take no time.
      utilisation: the share of the makespan in which an IPU works, averaged over the IPUs.
      bytes: for each IPU, in ascending order, what it keeps over time, as pairs of a time and the
        bytes from then on, until the next pair; () without `sizes`.
    """

    ticks: int
    tasks: int
    in_flight: tuple[int, ...]
    in_flight_per_ipu: tuple[int, ...]
    fifo_depth: tuple[int, ...]
    bubble: float
    makespan: float
    synced_makespan: float
    utilisation: float
    bytes: tuple[BytesOverTime, ...] = ()


def simulate(
    schedule: Schedule,
    seconds: Seconds | None = None,
    *,
    transfer: float | Sequence[float] = 0.0,
    sizes: float | Sequence[float] | None = None,
) -> Simulation:
    """Runs a schedule without computing anything.

    Args:
      schedule: the schedule.
      seconds: the duration of the tasks of each phase; without it, each takes 1.
      transfer: how long a result travels to the next stage, or a gradient back, if that is on
        other IPUs, which may work meanwhile: one number, or one for every stage but the last.
      sizes: the bytes that each IPU of a stage keeps of a micro-batch, from the start of its
        forward task to the end of the last of its gradients (of the forward task, for inference):
        one number, or one for every stage. A stage with R keeps nothing from the end of F to the
        start of R, one with O and L nothing from the end of O to the start of L.
        `Simulation.bytes` then has entries for every task.

    Raises:
      ScheduleError: a task that is missing, unknown, there twice, or before its inputs; with the
        ticks drawn. Durations or sizes that are missing or negative.
    """
    check_instance(schedule, Schedule, "the argument of `simulate`")
    checker = _check_all_tasks(schedule)
    in_flight, in_flight_per_ipu = checker.summarize()
    exact_durations = _read_durations(schedule, seconds)
    exact_delays = _read_row("`transfer`", transfer, schedule.stages - 1)
    # Sums of ints are exact, so skipped rounds give exactly the result of running them.
    units = math.lcm(*(n.denominator for n in (*exact_durations.values(), *exact_delays)))
    durations = {kind: int(duration * units) for kind, duration in exact_durations.items()}
    delays = [int(delay * units) for delay in exact_delays]
    synced_end, busy = _compute_synced_makespan(schedule, durations)
    makespan = compute_makespan(schedule, durations, delays)
    over_time: tuple[BytesOverTime, ...] = ()
    if sizes is not None:
        bytes_of_stages = _read_row("`sizes`", sizes, schedule.stages, "size")
        over_time = compute_bytes_over_time(schedule, durations, delays, bytes_of_stages, units)
    return Simulation(
        ticks=len(schedule.ticks),
        tasks=schedule.num_tasks,
        in_flight=in_flight,
        in_flight_per_ipu=in_flight_per_ipu,
        fifo_depth=tuple(count - 1 for count in in_flight),
        bubble=bubble_fraction_of(schedule),
        makespan=makespan / units,
        synced_makespan=synced_end / units,
        utilisation=busy / (len(in_flight_per_ipu) * makespan) if makespan else 1.0,
        bytes=over_time,
    )


def _check_all_tasks(schedule: Schedule, *, skips: bool = True) -> _TaskChecker:
    """Raises at the first task in a wrong tick; returns what has counted those in flight.

    Rounds that repeat the one before for later micro-batches are skipped up to the last: the
    results that they read from outside of the run are there if they are there for the last one.
    """
    checker, tick = _TaskChecker(schedule), 0
    try:
        for run in runs_of_ticks(schedule.ticks):
            number = 0
            while number < run.times:
                counts_before = checker.done.counts_if_run_in_order()
                for tasks in run.ticks_of_round(number):
                    checker.check_tick(tick, tasks)
                    tick += 1
                number += 1
                rounds_left = run.times - 1 - number
                if (
                    skips
                    and rounds_left > 0
                    and checker.skip_rounds_like(counts_before, run, rounds_left)
                ):
                    number += rounds_left
                    tick += rounds_left * len(run.ticks)
        checker.check_all_have_run()
    except ScheduleError:
        if skips:  # to name the first mistake, and not that of a last round
            _check_all_tasks(schedule, skips=False)
        raise
    return checker


class _TaskChecker:
    """The tasks that have run, tick by tick, with checks of the next ones.

    Attributes:
      done: the tasks that have run.
      most: for each stage, the most micro-batches that were in flight so far.
      waiting: for each stage, how many are in flight.
      held: how many are in flight of all stages of each IPU.
      most_held: the most of these so far.
    """

    def __init__(self, schedule: Schedule):
        self.schedule, self.layout = schedule, schedule.layout
        self.kinds = frozenset(schedule.kinds)
        self.last = schedule.last_phase
        self.done = Progress(self.layout.list_rows(schedule.kinds))
        self.waiting = [0] * schedule.stages
        self.most = [0] * schedule.stages
        self.held = dict.fromkeys(self.layout.all_ipus, 0)
        self.most_held = dict(self.held)

    def check_tick(self, tick: int, tasks: Tick) -> None:
        """Runs the tasks of a tick."""
        run_in_tick: set[Task] = set()
        layout = self.layout
        for task in tasks:
            stage, phase, micro_batch = task
            exists = (phase, stage) in self.kinds and 0 <= micro_batch < self.layout.micro_batches
            if not exists or self.has_run(task):
                _raise_unknown_task(self.schedule, tick, task)
            for needed in layout.needs(task):
                is_late = needed in run_in_tick and layout.ipus_of(needed) != layout.ipus_of(task)
                if is_late or not self.has_run(needed):
                    _raise_early_task(self.schedule, tick, task)
            self.done.record_task(*layout.row_of(task))
            run_in_tick.add(task)
            if phase == Phase.FORWARD:
                self._hold(stage, layout.copy_of(micro_batch), 1)
            if phase == self.last:
                self._hold(stage, layout.copy_of(micro_batch), -1)

    def summarize(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the most in flight of each stage, and of each IPU in ascending order."""
        if not self.schedule.training:
            return (1,) * self.schedule.stages, (1,) * len(self.held)
        return tuple(self.most), tuple(self.most_held[ipu] for ipu in sorted(self.held))

    def has_run(self, task: Task) -> bool:
        """Returns whether a task has run."""
        return self.done.is_recorded(*self.layout.row_of(task))

    def _hold(self, stage: int, copy: int, change: int) -> None:
        """Records that as many more micro-batches of a stage are in flight."""
        self.waiting[stage] += change
        self.most[stage] = max(self.most[stage], self.waiting[stage])
        for ipu in self.schedule.copies[copy][stage]:
            self.held[ipu] += change
            self.most_held[ipu] = max(self.most_held[ipu], self.held[ipu])

    def skip_rounds_like(
        self, counts_before: Mapping[Row, int] | None, run: Run, rounds: int
    ) -> bool:
        """Skips rounds that repeat the one since `counts_before`, by counting them all at once."""
        counts_now = self.done.counts_if_run_in_order()
        if counts_before is None or counts_now is None:
            return False
        steps = {row: counts_now[row] - count for row, count in counts_before.items()}
        lanes = self.layout.lanes
        if any(step and step * lanes != run.step for step in steps.values()):
            return False
        self.done.record_tasks_in_order({row: step * rounds for row, step in steps.items()})
        for phase, stage, lane in steps:
            if phase == Phase.FORWARD:
                change = steps[phase, stage, lane] - steps[self.last, stage, lane]
                self._hold(stage, self.layout.copy_of(lane), rounds * change)
        return True

    def check_all_have_run(self) -> None:
        """Raises if some task has not run."""
        for (phase, stage, lane), count in self.done.count.items():
            if count < self.layout.count_row(lane):
                number = lane + count * self.layout.lanes
                _raise_missing_task(self.schedule, Task(stage, phase, number))


def _raise_unknown_task(schedule: Schedule, tick: int, task: Task) -> NoReturn:
    earlier_tick = next((i for i in range(tick) if task in schedule.ticks[i]), None)
    if earlier_tick is None and schedule.ticks[tick].count(task) > 1:
        earlier_tick = tick
    if earlier_tick is not None:
        problem = f"tick {tick} runs {task} again after tick {earlier_tick}"
        _raise_at_tick(schedule, problem, "run every task once", tick, task)
    kind = "training" if schedule.training else "inference"
    problem = (
        f"tick {tick} runs {task}, which {kind} with {schedule.stages} stages and "
        f"{schedule.micro_batches} micro-batches does not have"
    )
    _raise_at_tick(
        schedule, problem, "leave it out, or give the schedule other numbers", tick, task
    )


def _raise_early_task(schedule: Schedule, tick: int, task: Task) -> NoReturn:
    layout = schedule.layout
    for input_task in layout.needs(task):
        at = next((i for i, tasks in enumerate(schedule.ticks) if input_task in tasks), None)
        if at is None:
            problem = f"{input_task}, which never runs"
        elif at > tick:
            problem = f"{input_task}, which runs in tick {at}"
        elif at == tick and schedule.ticks[tick].index(input_task) > schedule.ticks[tick].index(
            task
        ):
            problem = f"{input_task}, which is dispatched after it"
        elif at == tick and layout.ipus_of(input_task) != layout.ipus_of(task):
            problem = f"{input_task}, which other IPUs run in the same tick"
        else:
            continue
        break
    else:
        raise InternalError(f"{schedule.name}: {task} in tick {tick} is not early")
    message = f"{task} in tick {tick} needs {problem}"
    _raise_at_tick(schedule, message, f"run {task} in a tick after {input_task}", tick, task)


def _raise_missing_task(schedule: Schedule, task: Task) -> NoReturn:
    # The drawing shows the last tick of its micro-batch on the stage: the task should follow it.
    ticks_of_micro_batch = [
        tick
        for tick, tasks in enumerate(schedule.ticks)
        if any(t.stage == task.stage and t.micro_batch == task.micro_batch for t in tasks)
    ]
    tick = ticks_of_micro_batch[-1] if ticks_of_micro_batch else max(0, len(schedule.ticks) - 1)
    _raise_at_tick(schedule, f"{task} never runs", "run every task once", tick)


def _raise_at_tick(
    schedule: Schedule, message: str, fix: str, tick: int, *marked_tasks: Task
) -> NoReturn:
    """Raises the error of a tick, with the ticks around it and the marked tasks drawn."""
    first, last = max(0, tick - _AROUND), min(len(schedule.ticks), tick + _AROUND + 1)
    grid = draw_grid(
        schedule.layout, schedule.ticks, first, last, [(tick, task) for task in marked_tasks]
    )
    raise ScheduleError(f"{schedule.name}: {message}", grid=grid, fix=fix)


def bubble_fraction_of(schedule: Schedule) -> float:
    """Returns the idle share; a task on several IPUs counts once on each."""
    layout = schedule.layout
    most_tasks = dict.fromkeys(layout.all_ipus, 0)
    total = 0
    for run in runs_of_ticks(schedule.ticks):
        for tasks in run.ticks:
            count = Counter(ipu for task in tasks for ipu in layout.ipus_of(task))
            total += count.total() * run.times
            for ipu, tasks_in_tick in count.items():
                most_tasks[ipu] = max(most_tasks[ipu], tasks_in_tick)
    return 1 - total / (sum(most_tasks.values()) * len(schedule.ticks))


def _read_durations(schedule: Schedule, seconds: Seconds | None) -> dict[Kind, Fraction]:
    """Returns the duration of a task of each kind."""
    if seconds is None:
        return dict.fromkeys(schedule.kinds, Fraction(1))
    check_instance(seconds, Mapping, "`seconds`")
    rows: dict[Phase, list[Fraction]] = {}
    for phase in dict.fromkeys(phase for phase, _ in schedule.kinds):
        length = seconds.get(phase)
        if length is None:
            raise ScheduleError(
                f"`seconds` says nothing of {phase.name}",
                fix=f"give every phase a duration, this one as `{phase.value}`",
            )
        rows[phase] = _read_row(f"`seconds` for {phase.name}", length, schedule.stages)
    return {(phase, stage): rows[phase][stage] for phase, stage in schedule.kinds}


def _read_row(
    role: str, numbers: float | Sequence[float], count: int, unit: str = "duration"
) -> list[Fraction]:
    """Returns exact durations or sizes from one number for all, or one for each."""
    row: list[Any] = [*numbers] if isinstance(numbers, Sequence) else [numbers] * count
    if len(row) != count or not all(_is_amount(value) for value in row):
        raise ScheduleError(
            f"{role}: {repr_or_type(numbers)}",
            fix=f"give one {unit}, or {count}, finite and none of them negative",
        )
    return [Fraction(float(value)) for value in row]


def _is_amount(value: Any) -> bool:
    try:
        return 0 <= value < math.inf
    except Exception:  # whatever an object raises when it is compared with a number
        return False


def _compute_synced_makespan(schedule: Schedule, durations: Mapping[Kind, int]) -> tuple[int, int]:
    """Returns the makespan with a sync after every tick, and the work of all IPUs together."""
    synced = busy = 0
    layout = schedule.layout
    for run in runs_of_ticks(schedule.ticks):
        for tasks in run.ticks:
            clock: dict[int, int] = {}  # since the sync; inputs of other IPUs were there by then
            for task in tasks:
                group, duration = layout.ipus_of(task), durations[task.phase, task.stage]
                finish = max(clock.get(ipu, 0) for ipu in group) + duration
                clock.update(dict.fromkeys(group, finish))
                busy += duration * len(group) * run.times
            synced += max(clock.values(), default=0) * run.times
    return synced, busy
