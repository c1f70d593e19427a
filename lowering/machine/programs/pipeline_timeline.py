"""The start times of a pipeline's tasks, if all its IPUs sync after every tick."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lowering.ground import InternalError
from lowering.machine.trace import PHASES
from lowering.schedules import (
    Phase,
    Schedule,
    bubble_fraction_of,
    runs_of_ticks,
)

TaskKind: TypeAlias = tuple[int, Phase]
"""A stage and the phase of a task."""

_FORWARD_PHASES = (Phase.FORWARD, Phase.OFFLOAD)
_TICKS_AT_ONCE = 4096  # bounds the clocks [ticks, ipus] that are in memory together


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One run of a pipeline, its weight update not counted.

    The columns of tasks are in the order of the schedule and fit `trace.build_tasks`, with a body
    for each entry of `bodies`. A task on several IPUs is there once; its body has steps on each.

    Attributes:
      bodies: the (stage, phase) of each kind of task.
      which: int32 [tasks], index into `bodies`.
      start: int64 [tasks], cycles from the start of the run.
      stage: int32 [tasks].
      micro_batch: int32 [tasks].
      phase: int8 [tasks], index into `trace.PHASES`; O is "fwd", all but F and O are "bwd".
      tick: int32 [tasks], in which tick each runs.
      tick_start: int64 [ticks], cycles from the start of the run.
      tick_work: int64 [ticks], cycles of the tasks of the slowest IPU.
      tick_cycles: int64 [ticks], the same with the given cost of syncs and transfers.
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


def compute_timeline(
    schedule: Schedule, cycles: Mapping[TaskKind, int], tick_cost: int | np.ndarray = 0
) -> Timeline:
    """Computes when tasks run: a tick lasts as long as its slowest IPU, and its fixed cost.

    Within a tick an IPU runs its tasks one after the other, and one of several IPUs starts when
    all of them are free. The fixed cost follows the tasks.

    Args:
      schedule: one that `schedules.simulate` accepts.
      cycles: how long a task of each stage and phase takes.
      tick_cost: cycles of syncs and transfers that are added to every tick, or to each of them
        (int64 [ticks]; see `find_tick_patterns`).

    Raises:
      InternalError: a duration that is missing or negative.
    """
    bodies = list_stage_phase_pairs(schedule)
    if any(cycles.get(body, -1) < 0 for body in bodies):
        raise InternalError(f"{schedule.name}: the cycles of a stage are missing or negative")
    rounds = _FirstRounds(schedule, bodies)
    stage_of = np.array([stage for stage, _ in bodies], dtype=np.int32)
    durations = np.array([cycles[body] for body in bodies], dtype=np.int64)
    ipus, ipu_index, has_stage = _index_stage_ipus(schedule)
    first = np.concatenate([[0], np.cumsum(rounds.lengths)])
    offset_in_tick, work = _offsets_in_ticks(
        stage_of[rounds.which], durations[rounds.which], first, ipu_index, len(ipus)
    )
    tick_work = rounds.expand_ticks(work)
    tick_cycles = tick_work + tick_cost
    tick_start = np.cumsum(tick_cycles) - tick_cycles
    makespan = int(tick_cycles.sum())
    which = rounds.expand_tasks(rounds.which)
    per_stage = np.zeros(schedule.stages, dtype=np.int64)
    np.add.at(per_stage, stage_of, np.bincount(which, minlength=len(bodies)) * durations)
    busy = per_stage @ has_stage
    number = np.arange(len(tick_cycles), dtype=np.int32)
    ticks = np.repeat(number, rounds.expand_ticks(rounds.lengths))
    words = ["fwd" if phase in _FORWARD_PHASES else "bwd" for _, phase in bodies]
    return Timeline(
        bodies=bodies,
        which=which,
        start=tick_start[ticks] + rounds.expand_tasks(offset_in_tick),
        stage=stage_of[which],
        micro_batch=rounds.micro_batch_of_tasks(),
        phase=np.array([PHASES.index(word) for word in words], dtype=np.int8)[which],
        tick=ticks,
        tick_start=tick_start,
        tick_work=tick_work,
        tick_cycles=tick_cycles,
        ipus=ipus,
        busy=busy,
        makespan=makespan,
        utilisation=int(busy.sum()) / (len(ipus) * makespan) if makespan else 1.0,
        bubble_fraction=bubble_fraction_of(schedule),
    )


def find_tick_patterns(schedule: Schedule) -> tuple[tuple[tuple[TaskKind, ...], ...], np.ndarray]:
    """Finds the ticks that differ in more than their micro-batches.

    A pipeline has few of them, however many ticks it has, so the transfers of a tick need only
    be found once for each.

    Returns:
      For each pattern the (stage, phase) of its tasks in order, and int32 [ticks], the pattern of
      each tick.
    """
    ticks = [tick for run in runs_of_ticks(schedule.ticks) for tick in run.ticks]
    patterns = [tuple((stage, phase) for stage, phase, _ in tick) for tick in ticks]
    numbers = {pattern: i for i, pattern in enumerate(dict.fromkeys(patterns))}
    pattern_of = np.array([numbers[look] for look in patterns], dtype=np.int32)
    return tuple(numbers), _FirstRounds(schedule, list_stage_phase_pairs(schedule)).expand_ticks(
        pattern_of
    )


def list_stage_phase_pairs(schedule: Schedule) -> tuple[TaskKind, ...]:
    """Returns the (stage, phase) of every kind of task that a schedule can have."""
    return tuple((stage, phase) for phase, stage in schedule.kinds)


class _FirstRounds:
    """The first round of each run of a schedule, which later rounds repeat.

    Attributes:
      which: int32 [tasks of these rounds], the body of each.
      lengths: int64 [ticks of these rounds], how many tasks each has.
    """

    def __init__(self, schedule: Schedule, bodies: Sequence[TaskKind]):
        self.runs = [run for run in runs_of_ticks(schedule.ticks) if run.ticks]
        ticks = [tick for run in self.runs for tick in run.ticks]
        number = {body: i for i, body in enumerate(bodies)}
        kinds = [number[stage, phase] for tick in ticks for stage, phase, _ in tick]
        self.which = np.array(kinds, dtype=np.int32)
        self.lengths = np.array([len(tick) for tick in ticks], dtype=np.int64)
        self.first = np.array([task.micro_batch for tick in ticks for task in tick], np.int32)

    def expand_ticks(self, values: np.ndarray) -> np.ndarray:
        """Expands values for the ticks of these rounds to all ticks."""
        return self._repeat_per_run(values, [len(run.ticks) for run in self.runs])

    def expand_tasks(self, values: np.ndarray) -> np.ndarray:
        """Expands values for the tasks of these rounds to all tasks."""
        return self._repeat_per_run(values, self._tasks_per_run())

    def micro_batch_of_tasks(self) -> np.ndarray:
        """Returns int32 [tasks]: the micro-batch of each task."""
        steps = [np.arange(run.times, dtype=np.int32) * np.int32(run.step) for run in self.runs]
        ahead = [np.repeat(s, n) for s, n in zip(steps, self._tasks_per_run(), strict=True)]
        return self.expand_tasks(self.first) + np.concatenate(ahead)

    def _tasks_per_run(self) -> list[int]:
        return [sum(map(len, run.ticks)) for run in self.runs]

    def _repeat_per_run(self, values: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        parts = np.split(values, np.cumsum(counts)[:-1])
        return np.concatenate(
            [np.tile(part, run.times) for part, run in zip(parts, self.runs, strict=True)]
        )


def _index_stage_ipus(schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the IPUs, the indices of each stage's IPUs among them, and which IPU has which."""
    ipus = np.unique(np.array([ipu for group in schedule.ipus for ipu in group], dtype=np.int32))
    widest = max(len(group) for group in schedule.ipus)
    padded_groups = [(*group, *(group[:1] * (widest - len(group)))) for group in schedule.ipus]
    ipu_index = np.searchsorted(ipus, np.array(padded_groups))
    has_stage = np.zeros((schedule.stages, len(ipus)), dtype=np.int64)
    has_stage[np.arange(schedule.stages)[:, None], ipu_index] = 1
    return ipus, ipu_index, has_stage


def _offsets_in_ticks(
    stage: np.ndarray, lengths: np.ndarray, first: np.ndarray, ipu_index: np.ndarray, num_ipus: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns when each task starts within its tick, and how long the tasks of each tick take.

    Ticks do not depend on each other: the first tasks of many run together, then the second ones.
    """
    num_ticks = len(first) - 1
    offset_in_tick = np.zeros(len(stage), dtype=np.int64)
    work = np.zeros(num_ticks, dtype=np.int64)
    for low in range(0, num_ticks, _TICKS_AT_ONCE):
        starts = first[low : low + _TICKS_AT_ONCE + 1]
        counts = np.diff(starts)
        clock = np.zeros((len(counts), num_ipus), dtype=np.int64)
        for rank in range(int(counts.max())):
            ticks = np.flatnonzero(counts > rank)
            tasks = starts[ticks] + rank
            ipu_indices = ipu_index[stage[tasks]]
            start = clock[ticks[:, None], ipu_indices].max(axis=1)
            offset_in_tick[tasks] = start
            clock[ticks[:, None], ipu_indices] = (start + lengths[tasks])[:, None]
        work[low : low + len(counts)] = clock.max(axis=1)
    return offset_in_tick, work
