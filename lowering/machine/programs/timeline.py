"""When the tasks of a pipeline run, if all its IPUs sync after every tick."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lowering.errors import InternalError
from lowering.machine.trace import PHASES
from lowering.schedules import Phase, Schedule
from lowering.schedules.simulate import bubble, phases
from lowering.schedules.ticks import runs_of

TaskKind: TypeAlias = tuple[int, Phase]
"""A stage and what a task does for it."""

_TICKS_AT_ONCE = 4096  # bounds the clocks [ticks, ipus] that are in memory together


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One run of a pipeline, its weight update not counted.

    The columns of tasks are in the order of the schedule and fit `trace.tasks`, with a body for
    each entry of `bodies`. A task on several IPUs is there once; its body has steps on each.

    Attributes:
      bodies: the (stage, phase) of each kind of task.
      which: int32 [tasks], index into `bodies`.
      start: int64 [tasks], cycles from the start of the run.
      stage: int32 [tasks].
      micro_batch: int32 [tasks].
      phase: int8 [tasks], index into `trace.PHASES`; gradients of weights are "bwd" too.
      tick: int32 [tasks], in which tick each runs.
      tick_start: int64 [ticks], cycles from the start of the run.
      tick_work: int64 [ticks], cycles of the tasks of the slowest IPU.
      tick_cycles: int64 [ticks], the same with what was given for syncs and transfers.
      ipus: int32 [ipus], the pipeline's IPUs in ascending order.
      busy: int64 [ipus], cycles of all tasks of each.
      makespan: cycles of all ticks.
      utilisation: the share of the makespan in which an IPU works, averaged over IPUs.
      bubble_fraction: `schedules.Simulation.bubble`, the idle share in ticks.
    """

    bodies: tuple[tuple[int, Phase], ...]
    which: np.ndarray
    start: np.ndarray
    stage: np.ndarray
    micro_batch: np.ndarray
    phase: np.ndarray
    tick: np.ndarray
    tick_start: np.ndarray
    tick_work: np.ndarray
    tick_cycles: np.ndarray
    ipus: np.ndarray
    busy: np.ndarray
    makespan: int
    utilisation: float
    bubble_fraction: float


def pipeline_timeline(
    schedule: Schedule, cycles: Mapping[TaskKind, int], tick_cost: int | np.ndarray = 0
) -> Timeline:
    """Runs a schedule with costs: a tick lasts as long as its slowest IPU, and its fixed cost.

    Within a tick an IPU runs its tasks one after the other, and one of several IPUs starts when
    all of them are free. The fixed cost follows the tasks.

    Args:
      schedule: one that `schedules.simulate` accepts.
      cycles: how long a task of each stage and phase takes.
      tick_cost: cycles of syncs and transfers that are added to every tick, or to each of them
        (int64 [ticks]; see `tick_patterns`).

    Raises:
      InternalError: a duration that is missing or negative.
    """
    bodies = bodies_of(schedule)
    if any(cycles.get(body, -1) < 0 for body in bodies):
        raise InternalError(f"{schedule.name}: the cycles of a stage are missing or negative")
    rounds = _Rounds(schedule, bodies)
    stage_of = np.array([stage for stage, _ in bodies], dtype=np.int32)
    durations = np.array([cycles[body] for body in bodies], dtype=np.int64)
    ipus, placed, member = _placed(schedule)
    first = np.concatenate([[0], np.cumsum(rounds.lengths)])
    within, work = _offsets(
        stage_of[rounds.which], durations[rounds.which], first, placed, len(ipus)
    )
    tick_work = rounds.by_tick(work)
    tick_cycles = tick_work + tick_cost
    tick_start = np.cumsum(tick_cycles) - tick_cycles
    makespan = int(tick_cycles.sum())
    which = rounds.by_task(rounds.which)
    per_stage = np.zeros(schedule.stages, dtype=np.int64)
    np.add.at(per_stage, stage_of, np.bincount(which, minlength=len(bodies)) * durations)
    busy = per_stage @ member
    number = np.arange(len(tick_cycles), dtype=np.int32)
    ticks = np.repeat(number, rounds.by_tick(rounds.lengths))
    words = ["fwd" if phase is Phase.FORWARD else "bwd" for _, phase in bodies]
    return Timeline(
        bodies=bodies,
        which=which,
        start=tick_start[ticks] + rounds.by_task(within),
        stage=stage_of[which],
        micro_batch=rounds.micro_batches(),
        phase=np.array([PHASES.index(word) for word in words], dtype=np.int8)[which],
        tick=ticks,
        tick_start=tick_start,
        tick_work=tick_work,
        tick_cycles=tick_cycles,
        ipus=ipus,
        busy=busy,
        makespan=makespan,
        utilisation=int(busy.sum()) / (len(ipus) * makespan) if makespan else 1.0,
        bubble_fraction=bubble(schedule),
    )


def tick_patterns(schedule: Schedule) -> tuple[tuple[tuple[TaskKind, ...], ...], np.ndarray]:
    """The ticks that differ in more than their micro-batches.

    A pipeline has few of them, however many ticks it has, so what a tick transfers need only be
    found once for each.

    Returns:
      For each pattern the (stage, phase) of its tasks in order, and int32 [ticks], the pattern of
      each tick.
    """
    ticks = [tick for run in runs_of(schedule.ticks) for tick in run.ticks]
    looks = [tuple((stage, phase) for stage, phase, _ in tick) for tick in ticks]
    numbers = {look: i for i, look in enumerate(dict.fromkeys(looks))}
    pattern_of = np.array([numbers[look] for look in looks], dtype=np.int32)
    return tuple(numbers), _Rounds(schedule, bodies_of(schedule)).by_tick(pattern_of)


def bodies_of(schedule: Schedule) -> tuple[TaskKind, ...]:
    """The (stage, phase) that tasks can have."""
    kinds = phases(schedule)
    return tuple((stage, phase) for phase in kinds for stage in range(schedule.stages))


class _Rounds:
    """The first round of each run of a schedule, which later rounds repeat.

    Attributes:
      which: int32 [tasks of these rounds], the body of each.
      lengths: int64 [ticks of these rounds], how many tasks each has.
    """

    def __init__(self, schedule: Schedule, bodies: Sequence[TaskKind]):
        self.runs = [run for run in runs_of(schedule.ticks) if run.ticks]
        ticks = [tick for run in self.runs for tick in run.ticks]
        number = {body: i for i, body in enumerate(bodies)}
        kinds = [number[stage, phase] for tick in ticks for stage, phase, _ in tick]
        self.which = np.array(kinds, dtype=np.int32)
        self.lengths = np.array([len(tick) for tick in ticks], dtype=np.int64)
        self.first = np.array([task.micro_batch for tick in ticks for task in tick], np.int32)

    def by_tick(self, values: np.ndarray) -> np.ndarray:
        """What is known for the ticks of these rounds, for all ticks."""
        return self._repeated(values, [len(run.ticks) for run in self.runs])

    def by_task(self, values: np.ndarray) -> np.ndarray:
        """What is known for the tasks of these rounds, for all tasks."""
        return self._repeated(values, self._tasks())

    def micro_batches(self) -> np.ndarray:
        """int32 [tasks]."""
        steps = [np.arange(run.times, dtype=np.int32) * np.int32(run.step) for run in self.runs]
        ahead = [np.repeat(s, n) for s, n in zip(steps, self._tasks(), strict=True)]
        return self.by_task(self.first) + np.concatenate(ahead)

    def _tasks(self) -> list[int]:
        return [sum(map(len, run.ticks)) for run in self.runs]

    def _repeated(self, values: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        parts = np.split(values, np.cumsum(counts)[:-1])
        return np.concatenate(
            [np.tile(part, run.times) for part, run in zip(parts, self.runs, strict=True)]
        )


def _placed(schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The IPUs; the places of each stage's among them, the first repeated; which IPU has which."""
    ipus = np.unique(np.array([ipu for group in schedule.ipus for ipu in group], dtype=np.int32))
    widest = max(len(group) for group in schedule.ipus)
    full = [(*group, *(group[:1] * (widest - len(group)))) for group in schedule.ipus]
    placed = np.searchsorted(ipus, np.array(full))
    member = np.zeros((schedule.stages, len(ipus)), dtype=np.int64)
    member[np.arange(schedule.stages)[:, None], placed] = 1
    return ipus, placed, member


def _offsets(
    stage: np.ndarray, lengths: np.ndarray, first: np.ndarray, placed: np.ndarray, num_ipus: int
) -> tuple[np.ndarray, np.ndarray]:
    """When each task starts within its tick, and how long the tasks of each tick take.

    Ticks do not depend on each other: the first tasks of many run together, then the second ones.
    """
    num_ticks = len(first) - 1
    within = np.zeros(len(stage), dtype=np.int64)
    work = np.zeros(num_ticks, dtype=np.int64)
    for low in range(0, num_ticks, _TICKS_AT_ONCE):
        starts = first[low : low + _TICKS_AT_ONCE + 1]
        counts = np.diff(starts)
        clock = np.zeros((len(counts), num_ipus), dtype=np.int64)
        for rank in range(int(counts.max())):
            ticks = np.flatnonzero(counts > rank)
            tasks = starts[ticks] + rank
            places = placed[stage[tasks]]
            begin = clock[ticks[:, None], places].max(axis=1)
            within[tasks] = begin
            clock[ticks[:, None], places] = (begin + lengths[tasks])[:, None]
        work[low : low + len(counts)] = clock.max(axis=1)
    return within, work
