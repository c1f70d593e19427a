"""One run of a pipeline: its tasks in ticks, and what passes between IPUs after each."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.profile import PipelineProfile
from lowering.machine.programs.timeline import Timeline, pipeline_timeline, tick_patterns
from lowering.machine.target import Target
from lowering.machine.transfers.links import external_sync_cycles, inter_ipu_cycles
from lowering.schedules import Phase, Schedule

TaskKey: TypeAlias = tuple[int, Phase]
"""A stage and what a task does for it."""

Flow: TypeAlias = tuple[int, int, float]
"""Bytes from one IPU to another."""

_WORDS = {Phase.FORWARD: "fwd", Phase.BACKWARD: "bwd", Phase.WEIGHTS: "wgt"}


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineRun:
    """One run, its weight update not counted.

    Attributes:
      trace: what each IPU does when.
      profile: how it fills the IPUs.
      transfer_cycles: what syncs and copies between ticks take, by IPU.
    """

    trace: tr.Trace
    profile: PipelineProfile
    transfer_cycles: Mapping[int, int]


def run_pipeline(
    schedule: Schedule,
    bodies: Mapping[TaskKey, tuple[tr.Trace, int]],
    flows: Mapping[TaskKey, Sequence[Flow]],
    target: Target,
    num_ipus: int,
) -> PipelineRun:
    """Runs a schedule; after each tick all IPUs sync and what its tasks have made is copied.

    Args:
      schedule: the schedule.
      bodies: steps and cycles of each task.
      flows: what is copied to other IPUs after each task.
      target: the chip.
      num_ipus: IPUs of one replica.
    """
    sync = external_sync_cycles(target, num_ipus) if num_ipus > 1 else 0
    patterns, pattern_of = tick_patterns(schedule)
    sent = [[flow for task in tasks for flow in flows.get(task, ())] for tasks in patterns]
    copies = np.array([inter_ipu_cycles(target, some) for some in sent], dtype=np.int64)
    cycles = {task: length for task, (_, length) in bodies.items()}
    timeline = pipeline_timeline(schedule, cycles, (copies + sync)[pattern_of])
    tasks = tr.tasks(
        [bodies[task][0] for task in timeline.bodies],
        timeline.which,
        timeline.start,
        timeline.stage,
        timeline.micro_batch,
        timeline.phase,
    )
    ends = timeline.tick_start + timeline.tick_work
    ipus: list[int] = timeline.ipus.tolist()
    parts: list[tuple[int, tr.Trace]] = [(0, tasks)]
    for number, some in enumerate(sent):
        between = _between(ipus, some, sync, int(copies[number]))
        if between.num_steps:
            parts.append((0, tr.at(between, ends[pattern_of == number])))
    ran = np.bincount(pattern_of, minlength=len(patterns))
    spent = dict.fromkeys(ipus, sync * len(pattern_of))
    for number, some in enumerate(sent):
        for ipu in _taking_part(some):
            spent[ipu] += int(copies[number] * ran[number])
    return PipelineRun(
        trace=tr.group(parts),
        profile=_profile(schedule, timeline, cycles),
        transfer_cycles={ipu: cycles for ipu, cycles in spent.items() if cycles},
    )


def _between(ipus: Sequence[int], flows: Sequence[Flow], sync: int, copies: int) -> tr.Trace:
    """What happens after a tick."""
    rows = [(ipu, "sync", "tick", 0, sync) for ipu in ipus if sync]
    rows += [(ipu, "inter_ipu", "copies", sync, copies) for ipu in _taking_part(flows) if copies]
    return tr.block(rows)


def _taking_part(flows: Sequence[Flow]) -> list[int]:
    return sorted({ipu for source, target, _ in flows for ipu in (source, target)})


def _profile(
    schedule: Schedule, timeline: Timeline, cycles: Mapping[TaskKey, int]
) -> PipelineProfile:
    return PipelineProfile(
        schedule=schedule.name,
        stages=schedule.stages,
        micro_batches=schedule.micro_batches,
        ticks=len(timeline.tick_cycles),
        bubble_fraction=timeline.bubble_fraction,
        utilisation=timeline.utilisation,
        tick_cycles=timeline.tick_cycles,
        stage_cycles={(stage, _WORDS[phase]): n for (stage, phase), n in cycles.items()},
        cycles=timeline.makespan,
    )
