"""Why IPUs wait: the bubble of a pipeline, what shares a tick with it, or something else."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Mapping
from typing import TypeAlias

from ipujax.report.advice.host_tasks import host_cycles
from ipujax.report.advice.index import Index
from lowering import machine, schedules, trace

_Task: TypeAlias = tuple[int, str]
"""A stage and what a task does for it."""

_Tick: TypeAlias = tuple[_Task, ...]


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Cycles of all IPUs together, in one call.

    Attributes:
      bubble: in ticks in which an IPU has no task, or fewer than it has in others.
      sharing: in the other ticks, what remains even if all stages take equally long: tasks that go
        forward wait for others that go backward.
      host: in these ticks, what goes away if tasks did nothing with queues.
      imbalance: in these ticks, the rest: stages do not take equally long.
      elsewhere: outside of the first pipeline's tasks, and while others copy.
      unused: of IPUs that do nothing in the whole call, which no other part counts.
      unused_ipus: these IPUs.
      pipeline: of all runs of the first pipeline, waiting included.
      work: of one micro-batch on each IPU of the pipeline, queues not counted; {} without one.
      stage_cycles: of all tasks of one micro-batch by stage, queues not counted; () without one.
      schedule: of the pipeline; None without one.
    """

    bubble: int = 0
    sharing: int = 0
    host: int = 0
    imbalance: int = 0
    elsewhere: int
    unused: int = 0
    unused_ipus: tuple[int, ...] = ()
    pipeline: int = 0
    work: Mapping[int, int]
    stage_cycles: tuple[int, ...] = ()
    schedule: schedules.Schedule | None = None


def waiting(index: Index, profile: machine.Profile, *, overlaps_io: bool = False) -> Waiting:
    """Splits what a call waits.

    Args:
      index: what was modelled.
      profile: what came of it.
      overlaps_io: whether queues work beside the tasks, which then do not wait for them.
    """
    busy = trace.busy(profile.steps.trace, profile.num_ipus).sum(axis=1)
    call = int(profile.cycles)
    unused_ipus = tuple(ipu for ipu, own in enumerate(busy.tolist()) if call and not own)
    unused = call * len(unused_ipus)
    whole = sum(max(0, call - int(own)) for own in busy.tolist()) - unused
    found = index.first_pipeline
    lines = profile.pipeline
    if found is None or lines is None:
        return Waiting(elsewhere=whole, unused=unused, unused_ipus=unused_ipus, work={})
    schedule, runs = found
    cycles = {key: int(own) for key, own in lines.stage_cycles.items()}
    hosts: dict[_Task, int] = {} if overlaps_io else host_cycles(profile)
    computed = {key: max(0, own - hosts.get(key, 0)) for key, own in cycles.items()}
    ticks = _patterns(schedule)
    bubble, within = _idle(schedule, ticks, cycles)
    _, without_host = _idle(schedule, ticks, computed)
    _, evened = _idle(schedule, ticks, _evened(computed))
    sharing = min(evened, without_host, within)
    imbalance = min(without_host, within) - sharing
    left = whole
    parts: list[int] = []
    for own in (bubble, sharing, imbalance, within - sharing - imbalance):
        parts.append(min(own * runs, left))
        left -= parts[-1]
    return Waiting(
        bubble=parts[0],
        sharing=parts[1],
        imbalance=parts[2],
        host=parts[3],
        elsewhere=left,
        unused=unused,
        unused_ipus=unused_ipus,
        pipeline=int(lines.cycles) * len(_ipus(schedule)) * runs,
        work=_work(schedule, computed),
        stage_cycles=_by_stage(lines.stages, computed),
        schedule=schedule,
    )


def _ipus(schedule: schedules.Schedule) -> list[int]:
    return sorted({ipu for group in schedule.ipus for ipu in group})


def _by_stage(stages: int, cycles: Mapping[_Task, int]) -> tuple[int, ...]:
    sums = [0] * stages
    for (stage, _), own in cycles.items():
        sums[stage] += own
    return tuple(sums)


def _work(schedule: schedules.Schedule, cycles: Mapping[_Task, int]) -> dict[int, int]:
    """Of one micro-batch on each IPU."""
    sums: collections.Counter[int] = collections.Counter()
    for (stage, _), own in cycles.items():
        for ipu in schedule.ipus[stage]:
            sums[ipu] += own
    return dict(sums)


def _evened(cycles: Mapping[_Task, int]) -> dict[_Task, int]:
    """All stages as long as they are on average."""
    sums: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for (_, phase), own in cycles.items():
        sums[phase] += own
        counts[phase] += 1
    return {(stage, phase): sums[phase] // counts[phase] for stage, phase in cycles}


def _patterns(schedule: schedules.Schedule) -> dict[_Tick, int]:
    """The ticks that differ in more than their micro-batches, and how often each is there."""
    counts: collections.Counter[_Tick] = collections.Counter()
    for run in schedules.runs_of(schedule.ticks):
        for tick in run.ticks:
            counts[tuple((t.stage, t.phase.word) for t in tick)] += run.times
    return counts


def _idle(
    schedule: schedules.Schedule, ticks: Mapping[_Tick, int], cycles: Mapping[_Task, int]
) -> tuple[int, int]:
    """Cycles of one run that IPUs wait since tasks are missing, and since tasks differ.

    An IPU without a task in a tick waits for all of it. One that has fewer than it has elsewhere,
    as in the first and last ticks of the grouped schedule, lacks as much as its longest tick has
    more.
    """
    told = [(*_tick(schedule, tasks, cycles), runs) for tasks, runs in ticks.items()]
    ipus = _ipus(schedule)
    most = {ipu: max(own[ipu] for own, _, _ in told) for ipu in ipus}
    slots = {ipu: max(counts[ipu] for _, counts, _ in told) for ipu in ipus}
    missing = differing = 0
    for own, counts, runs in told:
        length = max(own.values(), default=0)
        for ipu in ipus:
            waits = length - own[ipu]
            lacks = waits if not counts[ipu] else 0
            if 0 < counts[ipu] < slots[ipu]:
                lacks = min(waits, most[ipu] - own[ipu])
            missing += lacks * runs
            differing += (waits - lacks) * runs
    return missing, differing


def _tick(
    schedule: schedules.Schedule, tasks: _Tick, cycles: Mapping[_Task, int]
) -> tuple[collections.Counter[int], collections.Counter[int]]:
    """Cycles and tasks of each IPU."""
    own: collections.Counter[int] = collections.Counter()
    counts: collections.Counter[int] = collections.Counter()
    for stage, phase in tasks:
        for ipu in schedule.ipus[stage]:
            own[ipu] += cycles[stage, phase]
            counts[ipu] += 1
    return own, counts
