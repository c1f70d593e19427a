"""Why IPUs wait: the bubble of a pipeline, stages of unequal length, or something else."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from lowering import ir, machine, schedules, trace

_Task: TypeAlias = tuple[int, str]
"""A stage and what a task does for it."""

_WORDS = {
    schedules.Phase.FORWARD: "fwd",
    schedules.Phase.BACKWARD: "bwd",
    schedules.Phase.WEIGHTS: "wgt",
}


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Cycles of all IPUs together, in one call.

    Attributes:
      bubble: what the schedule leaves idle even if all stages take equally long.
      imbalance: what comes on top, since they do not.
      elsewhere: outside of the first pipeline, and while others copy.
      stage_cycles: of all tasks of one micro-batch, by stage; () without a pipeline.
      schedule: of the pipeline; None without one.
    """

    bubble: int
    imbalance: int
    elsewhere: int
    stage_cycles: tuple[int, ...]
    schedule: schedules.Schedule | None


def waiting(program: ir.Program, profile: machine.Profile) -> Waiting:
    """Splits what a call waits."""
    busy = trace.busy(profile.steps.trace, profile.num_ipus).sum(axis=1)
    whole = int(np.maximum(profile.cycles - busy, 0).sum())
    found = next(_pipelines(program.body, 1), None)
    lines = profile.pipeline
    if found is None or lines is None:
        return Waiting(bubble=0, imbalance=0, elsewhere=whole, stage_cycles=(), schedule=None)
    schedule, runs = found
    cycles_of = {key: int(own) for key, own in lines.stage_cycles.items()}
    idle = _idle(schedule, _evened(cycles_of))
    bubble = min(idle * runs, whole)
    imbalance = min(max(_idle(schedule, cycles_of) * runs - bubble, 0), whole - bubble)
    cycles = [0] * lines.stages
    for (stage, _), own in cycles_of.items():
        cycles[stage] += own
    return Waiting(
        bubble=bubble,
        imbalance=imbalance,
        elsewhere=whole - bubble - imbalance,
        stage_cycles=tuple(cycles),
        schedule=schedule,
    )


def _pipelines(body: ir.Sequence, times: int) -> Iterator[tuple[schedules.Schedule, int]]:
    """Schedules, and how often each runs in a call; loops without a known count run once."""
    for node in body.steps:
        if isinstance(node, ir.Repeat) and node.pipeline is not None:
            yield node.pipeline.schedule, times
            continue
        inside = times
        if isinstance(node, ir.Repeat):
            inside *= 1 if node.count is None else node.count
        for child in ir.children(node):
            yield from _pipelines(child, inside)


def _evened(cycles: Mapping[_Task, int]) -> dict[_Task, int]:
    """All stages as long as they are on average."""
    sums: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for (_, phase), own in cycles.items():
        sums[phase] += own
        counts[phase] += 1
    return {(stage, phase): sums[phase] // counts[phase] for stage, phase in cycles}


def _idle(schedule: schedules.Schedule, cycles: Mapping[_Task, int]) -> int:
    """Cycles of one run in which IPUs have no task, or have done theirs."""
    ipus = {ipu for group in schedule.ipus for ipu in group}
    idle = 0
    for tick in schedule.ticks:
        work: collections.Counter[int] = collections.Counter()
        for task in tick:
            for ipu in schedule.ipus[task.stage]:
                work[ipu] += cycles[task.stage, _WORDS[task.phase]]
        idle += max(work.values(), default=0) * len(ipus) - work.total()
    return idle
