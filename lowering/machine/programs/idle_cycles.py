"""The idle cycles of a pipeline's IPUs: ticks without a task, or with a shorter one than others."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from lowering.schedules import Schedule, runs_of_ticks

TaskOf: TypeAlias = tuple[int, str]
"""A stage and the word for the phase of a task."""

_Tick: TypeAlias = tuple[TaskOf, ...]


class IdleCycles(NamedTuple):
    """Idle cycles of one run, by IPU; syncs and transfers after ticks are not counted.

    Attributes:
      missing: those in ticks without a task, or with fewer than in others.
      differing: those in which the slowest IPU still works on its longer tasks.
    """

    missing: Mapping[int, int]
    differing: Mapping[int, int]


def count_idle_cycles(schedule: Schedule, cycles: Mapping[TaskOf, int]) -> IdleCycles:
    """Counts the cycles that each IPU waits while others have tasks.

    An IPU without a task in a tick waits for all of it. One with fewer tasks than in other ticks,
    as in the first and last ticks of the grouped schedule, lacks the time by which its longest
    tick is longer. A tick whose tasks take no time has no waiting.

    Args:
      schedule: the schedule of the pipeline.
      cycles: how long a task of each stage takes.
    """
    tick_kinds = [
        (*work_of_tick(schedule, tasks, cycles), runs)
        for tasks, runs in _count_distinct_ticks(schedule)
    ]
    ipus = _pipeline_ipus(schedule)
    longest_work = {ipu: max(work[ipu] for work, _, _ in tick_kinds) for ipu in ipus}
    most_tasks = {ipu: max(counts[ipu] for _, counts, _ in tick_kinds) for ipu in ipus}
    missing, differing = dict.fromkeys(ipus, 0), dict.fromkeys(ipus, 0)
    for work, counts, runs in tick_kinds:
        length = max(work.values(), default=0)
        for ipu in ipus:
            waiting_cycles = length - work[ipu]
            missing_cycles = waiting_cycles if not counts[ipu] else 0
            if 0 < counts[ipu] < most_tasks[ipu]:
                missing_cycles = min(waiting_cycles, longest_work[ipu] - work[ipu])
            missing[ipu] += missing_cycles * runs
            differing[ipu] += (waiting_cycles - missing_cycles) * runs
    return IdleCycles(missing, differing)


def _pipeline_ipus(schedule: Schedule) -> list[int]:
    """Returns the IPUs that have stages, in ascending order."""
    return sorted({ipu for group in schedule.ipus for ipu in group})


def work_of_tick(
    schedule: Schedule, tasks: _Tick, cycles: Mapping[TaskOf, int]
) -> tuple[collections.Counter[int], collections.Counter[int]]:
    """Returns the cycles and the number of tasks of each IPU in one tick."""
    work, counts = collections.Counter[int](), collections.Counter[int]()
    for stage, phase in tasks:
        for ipu in schedule.ipus[stage]:
            work[ipu] += cycles[stage, phase]
            counts[ipu] += 1
    return work, counts


def _count_distinct_ticks(schedule: Schedule) -> list[tuple[_Tick, int]]:
    """Returns the ticks that differ in more than their micro-batches, each with its count."""
    counts: collections.Counter[_Tick] = collections.Counter()
    for run in runs_of_ticks(schedule.ticks):
        for tick in run.ticks:
            counts[tuple((t.stage, t.phase.word) for t in tick)] += run.times
    return list(counts.items())
