"""One run of a pipeline: its tasks in ticks, and what passes between IPUs after each."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.kernels.totals import Total
from lowering.machine.options import ModelOptions
from lowering.machine.profile import TASK_PHASES, Grid, PipelineProfile
from lowering.machine.program_tree import ProgramNode
from lowering.machine.programs.idle import idle
from lowering.machine.programs.part import Part
from lowering.machine.programs.timeline import TaskKind, Timeline, pipeline_timeline, tick_patterns
from lowering.machine.transfers.links import external_sync_cycles
from lowering.schedules import Schedule

Flow: TypeAlias = tuple[int, int, float]
"""Bytes from one IPU to another."""

TRANSFERS = "pipeline transfers"
"""What reports call the syncs and copies between ticks."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What a task does.

    Attributes:
      trace: its steps.
      cycles: from its start to its end.
      nodes: its parts in the program tree.
      origin: the user's line.
    """

    trace: tr.Trace
    cycles: int
    nodes: tuple[ProgramNode, ...] = ()
    origin: str = ""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineRun:
    """One run, its weight update not counted.

    Attributes:
      trace: what each IPU does when.
      nodes: its parts in the program tree: tasks by phase and stage, then transfers.
      profile: how it fills the IPUs.
      transfers: syncs and copies between ticks, by IPU.
    """

    trace: tr.Trace
    nodes: tuple[ProgramNode, ...]
    profile: PipelineProfile
    transfers: Mapping[int, Total]


def run_pipeline(
    schedule: Schedule,
    bodies: Mapping[TaskKind, Body],
    flows: Mapping[TaskKind, Sequence[Flow]],
    options: ModelOptions,
    num_ipus: int,
    operation: int,
) -> PipelineRun:
    """Runs a schedule; after each tick all IPUs sync and what its tasks have made is copied.

    Args:
      schedule: the schedule.
      bodies: of each task.
      flows: what is copied to other IPUs after each task.
      options: the chip, and where its IPUs are.
      num_ipus: IPUs of one replica.
      operation: the number of what passes after ticks.
    """
    sync = external_sync_cycles(options.target, num_ipus) if num_ipus > 1 else 0
    patterns, pattern_of = tick_patterns(schedule)
    sent = [[flow for task in tasks for flow in flows.get(task, ())] for tasks in patterns]
    copies = np.array([options.between(some) for some in sent], dtype=np.int64)
    cycles = {task: body.cycles for task, body in bodies.items()}
    timeline = pipeline_timeline(schedule, cycles, (copies + sync)[pattern_of])
    tasks = tr.tasks(
        [bodies[task].trace for task in timeline.bodies],
        timeline.which,
        timeline.start,
        timeline.stage,
        timeline.micro_batch,
        timeline.phase,
    )
    ends = timeline.tick_start + timeline.tick_work
    ipus: list[int] = timeline.ipus.tolist()
    parts: list[tuple[int, tr.Trace]] = [(0, tasks)]
    ticks = len(pattern_of)
    bubble = idle(schedule, {(s, phase.word): n for (s, phase), n in cycles.items()}).missing
    spent = {
        ipu: Total(TRANSFERS, runs=ticks, cycles=sync * ticks, bubble_cycles=bubble[ipu])
        for ipu in ipus
    }
    for number, some in enumerate(sent):
        copied, begins = int(copies[number]), ends[pattern_of == number]
        between = _between(ipus, some, sync, copied, operation)
        if between.num_steps:
            parts.append((0, tr.at(between, begins)))
        for ipu in _taking_part(some):
            moved = sum(bytes_ for *pair, bytes_ in some if ipu in pair)
            spent[ipu].add(Total("", cycles=copied, bytes=moved), len(begins))
    return PipelineRun(
        trace=tr.group(parts),
        nodes=(*_tasks(schedule, bodies), *_transfers(copies[pattern_of] + sync)),
        profile=_profile(schedule, timeline, cycles),
        transfers={i: total for i, total in spent.items() if total.cycles or total.bubble_cycles},
    )


def _tasks(schedule: Schedule, bodies: Mapping[TaskKind, Body]) -> list[ProgramNode]:
    tasks: list[ProgramNode] = []
    for (stage, phase), body in bodies.items():
        ipu, *others = schedule.ipus[stage]
        name, part = f"stage {stage} {phase.word}", Part(nodes=body.nodes)
        task = part.under("task", name, body.origin, body.cycles, None if others else ipu)
        tasks += task.times(schedule.micro_batches).nodes
    return tasks


def _transfers(ticks: np.ndarray) -> list[ProgramNode]:
    """A node for all ticks after which syncs and copies take the same time."""
    lengths, counts = np.unique(ticks[ticks > 0], return_counts=True)
    return [
        ProgramNode(kind="copy", name=TRANSFERS, cycles=cycles, count=count)
        for cycles, count in zip(lengths.tolist(), counts.tolist(), strict=True)
    ]


def _between(
    ipus: Sequence[int], flows: Sequence[Flow], sync: int, copies: int, operation: int
) -> tr.Trace:
    """What happens after a tick."""
    rows = [(ipu, "sync", f"{TRANSFERS}/sync", "", 0, sync, operation) for ipu in ipus if sync]
    takers = _taking_part(flows) if copies else []
    rows += [(ipu, "inter_ipu", TRANSFERS, "", sync, copies, operation) for ipu in takers]
    return tr.block(rows)


def _taking_part(flows: Sequence[Flow]) -> list[int]:
    return sorted({ipu for source, target, _ in flows for ipu in (source, target)})


def _profile(
    schedule: Schedule, timeline: Timeline, cycles: Mapping[TaskKind, int]
) -> PipelineProfile:
    return PipelineProfile(
        schedule=schedule.name,
        stages=schedule.stages,
        micro_batches=schedule.micro_batches,
        ticks=len(timeline.tick_cycles),
        bubble_fraction=timeline.bubble_fraction,
        utilisation=timeline.utilisation,
        tick_cycles=timeline.tick_cycles,
        stage_cycles={(stage, phase.word): n for (stage, phase), n in cycles.items()},
        cycles=timeline.makespan,
        stage_ipus=schedule.ipus,
        grid=_grid(timeline),
    )


def _grid(timeline: Timeline) -> Grid:
    phases = np.array([TASK_PHASES.index(phase.word) for _, phase in timeline.bodies])
    return Grid.of(timeline.stage, phases[timeline.which], timeline.micro_batch, timeline.tick)
