"""One run of a pipeline: its tasks in ticks, and the transfers between IPUs after each tick."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.kernels.totals import Total
from lowering.machine.machine_options import ModelOptions
from lowering.machine.profile import TASK_PHASES, Grid, PipelineProfile
from lowering.machine.program_tree import ProgramNode
from lowering.machine.programs.idle_cycles import count_idle_cycles
from lowering.machine.programs.pipeline_timeline import (
    TaskKind,
    Timeline,
    compute_timeline,
    find_tick_patterns,
)
from lowering.machine.programs.timed_part import TimedPart
from lowering.machine.transfers.links import external_sync_cycles
from lowering.schedules import Schedule

Flow: TypeAlias = tuple[int, int, float]
"""Bytes from one IPU to another."""

TRANSFERS = "pipeline transfers"
"""The name of the syncs and copies between ticks in reports."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class TaskBody:
    """The timed body of a task.

    Attributes:
      trace: its steps.
      cycles: cycles from its start to its end.
      nodes: its parts in the program tree.
      origin: the user's line.
    """

    trace: tr.Trace
    cycles: int
    nodes: tuple[ProgramNode, ...] = ()
    origin: str = ""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineRun:
    """One run of a pipeline, its weight update not counted.

    Attributes:
      trace: the steps of each IPU.
      nodes: its parts in the program tree: tasks by phase and stage, then transfers.
      profile: its use of the IPUs.
      transfers: syncs and copies between ticks, by IPU.
    """

    trace: tr.Trace
    nodes: tuple[ProgramNode, ...]
    profile: PipelineProfile
    transfers: Mapping[int, Total]


def time_pipeline_schedule(
    schedule: Schedule,
    bodies: Mapping[TaskKind, TaskBody],
    flows: Mapping[TaskKind, Sequence[Flow]],
    options: ModelOptions,
    num_ipus: int,
    operation: int,
) -> PipelineRun:
    """Times a schedule; after each tick all IPUs sync and results of its tasks are copied.

    Args:
      schedule: the schedule.
      bodies: the body of each task.
      flows: the copies to other IPUs after each task.
      options: the chip, and where its IPUs are.
      num_ipus: IPUs of one replica.
      operation: the number of the transfers after ticks.
    """
    sync = external_sync_cycles(options.target, num_ipus) if num_ipus > 1 else 0
    patterns, pattern_of = find_tick_patterns(schedule)
    flows_by_pattern = [
        [flow for task in tasks for flow in flows.get(task, ())] for tasks in patterns
    ]
    copies = np.array(
        [options.cycles_between_ipus(flows_of_pattern) for flows_of_pattern in flows_by_pattern],
        dtype=np.int64,
    )
    cycles = {task: body.cycles for task, body in bodies.items()}
    timeline = compute_timeline(schedule, cycles, (copies + sync)[pattern_of])
    tasks = tr.build_tasks(
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
    bubble = count_idle_cycles(
        schedule, {(s, phase.word): n for (s, phase), n in cycles.items()}
    ).missing
    transfer_totals = {
        ipu: Total(TRANSFERS, runs=ticks, cycles=sync * ticks, bubble_cycles=bubble[ipu])
        for ipu in ipus
    }
    for number, some in enumerate(flows_by_pattern):
        copy_cycles, start_times = int(copies[number]), ends[pattern_of == number]
        transfer_trace = _trace_of_transfers(ipus, some, sync, copy_cycles, operation)
        if transfer_trace.num_steps:
            parts.append((0, tr.repeat_trace_at_cycles(transfer_trace, start_times)))
        for ipu in _ipus_of_flows(some):
            moved_bytes = sum(bytes_ for *pair, bytes_ in some if ipu in pair)
            transfer_totals[ipu].add_runs(
                Total("", cycles=copy_cycles, bytes=moved_bytes), len(start_times)
            )
    return PipelineRun(
        trace=tr.group_traces(parts),
        nodes=(
            *_nodes_of_tasks(schedule, bodies, timeline),
            *_nodes_of_transfers(copies[pattern_of] + sync),
        ),
        profile=_build_pipeline_profile(schedule, timeline, cycles),
        transfers={
            i: total for i, total in transfer_totals.items() if total.cycles or total.bubble_cycles
        },
    )


def _nodes_of_tasks(
    schedule: Schedule, bodies: Mapping[TaskKind, TaskBody], timeline: Timeline
) -> list[ProgramNode]:
    tasks: list[ProgramNode] = []
    runs = np.bincount(timeline.which, minlength=len(timeline.bodies)).tolist()
    count_of = dict(zip(timeline.bodies, runs, strict=True))
    for (stage, phase), body in bodies.items():
        ipu, *other_ipus = schedule.ipus[stage]
        name, part = f"stage {stage} {phase.word}", TimedPart(nodes=body.nodes)
        task = part.wrap_in_node(
            "task", name, body.origin, body.cycles, None if other_ipus else ipu
        )
        tasks += task.set_node_counts(count_of[stage, phase]).nodes
    return tasks


def _nodes_of_transfers(ticks: np.ndarray) -> list[ProgramNode]:
    """Returns a node for all ticks after which syncs and copies take the same time."""
    lengths, counts = np.unique(ticks[ticks > 0], return_counts=True)
    return [
        ProgramNode(kind="copy", name=TRANSFERS, cycles=cycles, count=count)
        for cycles, count in zip(lengths.tolist(), counts.tolist(), strict=True)
    ]


def _trace_of_transfers(
    ipus: Sequence[int], flows: Sequence[Flow], sync: int, copies: int, operation: int
) -> tr.Trace:
    """Returns the steps of all IPUs after a tick: a sync, and copies on some."""
    rows = [(ipu, "sync", f"{TRANSFERS}/sync", "", 0, sync, operation) for ipu in ipus if sync]
    copying_ipus = _ipus_of_flows(flows) if copies else []
    rows += [(ipu, "inter_ipu", TRANSFERS, "", sync, copies, operation) for ipu in copying_ipus]
    return tr.build_block(rows)


def _ipus_of_flows(flows: Sequence[Flow]) -> list[int]:
    return sorted({ipu for source, target, _ in flows for ipu in (source, target)})


def _build_pipeline_profile(
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
        grid=_build_task_grid(timeline),
    )


def _build_task_grid(timeline: Timeline) -> Grid:
    phases = np.array([TASK_PHASES.index(phase.word) for _, phase in timeline.bodies])
    return Grid.from_unsorted_tasks(
        timeline.stage, phases[timeline.which], timeline.micro_batch, timeline.tick
    )
