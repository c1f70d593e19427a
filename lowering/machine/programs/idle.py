"""What the IPUs of a pipeline wait in its ticks: for want of a task, or for others' longer ones."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from lowering.schedules import Schedule, runs_of

TaskOf: TypeAlias = tuple[int, str]
"""A stage and the word of what a task does for it."""

_Tick: TypeAlias = tuple[TaskOf, ...]


class Idle(NamedTuple):
    """Cycles of one run, by IPU of the pipeline; syncs and transfers after ticks are not counted.

    Attributes:
      missing: it has no task, or fewer than in other ticks.
      differing: its tasks are shorter than those of the slowest IPU.
    """

    missing: Mapping[int, int]
    differing: Mapping[int, int]


def idle(schedule: Schedule, cycles: Mapping[TaskOf, int]) -> Idle:
    """What each IPU waits while others have tasks.

    One without a task in a tick waits for all of it. One that has fewer than it has elsewhere, as
    in the first and last ticks of the grouped schedule, lacks as much as its longest tick has
    more. A tick whose tasks take no time is no waiting at all.

    Args:
      schedule: of the pipeline.
      cycles: how long a task of each stage takes.
    """
    every = [(*tick_work(schedule, tasks, cycles), runs) for tasks, runs in _ticks(schedule)]
    ipus = ipus_of(schedule)
    most = {ipu: max(work[ipu] for work, _, _ in every) for ipu in ipus}
    slots = {ipu: max(counts[ipu] for _, counts, _ in every) for ipu in ipus}
    missing, differing = dict.fromkeys(ipus, 0), dict.fromkeys(ipus, 0)
    for work, counts, runs in every:
        length = max(work.values(), default=0)
        for ipu in ipus:
            waits = length - work[ipu]
            lacks = waits if not counts[ipu] else 0
            if 0 < counts[ipu] < slots[ipu]:
                lacks = min(waits, most[ipu] - work[ipu])
            missing[ipu] += lacks * runs
            differing[ipu] += (waits - lacks) * runs
    return Idle(missing, differing)


def ipus_of(schedule: Schedule) -> list[int]:
    """Those that have stages, in ascending order."""
    return sorted({ipu for group in schedule.ipus for ipu in group})


def tick_work(
    schedule: Schedule, tasks: _Tick, cycles: Mapping[TaskOf, int]
) -> tuple[collections.Counter[int], collections.Counter[int]]:
    """Cycles and tasks of each IPU in one tick."""
    work, counts = collections.Counter[int](), collections.Counter[int]()
    for stage, phase in tasks:
        for ipu in schedule.ipus[stage]:
            work[ipu] += cycles[stage, phase]
            counts[ipu] += 1
    return work, counts


def _ticks(schedule: Schedule) -> list[tuple[_Tick, int]]:
    """The ticks that differ in more than their micro-batches, and how often each is there."""
    counts: collections.Counter[_Tick] = collections.Counter()
    for run in runs_of(schedule.ticks):
        for tick in run.ticks:
            counts[tuple((t.stage, t.phase.word) for t in tick)] += run.times
    return list(counts.items())
