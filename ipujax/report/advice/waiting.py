"""Splits the time that IPUs wait by cause: a pipeline's bubble, shared ticks, the host, others."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Mapping

from ipujax.report.advice.index import ProgramIndex
from lowering import machine, schedules, trace

_HOST = trace.KINDS.index("host")


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The cycles that all IPUs together wait in one call, by cause.

    Attributes:
      bubble: cycles in ticks in which an IPU has no task, or fewer than in other ticks.
      sharing: in the other ticks, what remains even if all stages take equally long: tasks that go
        forward wait for others that go backward.
      host: in these ticks, the cycles that vanish if tasks used no queues.
      imbalance: in these ticks, the remaining cycles, as stages do not take equally long.
      elsewhere: cycles outside of the first pipeline's tasks, and while other IPUs copy.
      unused: cycles of IPUs that do nothing in the whole call; no other field counts them.
      unused_ipus: these IPUs.
      work: cycles of a micro-batch on each IPU of the pipeline, without queues; {} without one.
      schedule: the pipeline's schedule; None without a pipeline.
    """

    bubble: int = 0
    sharing: int = 0
    host: int = 0
    imbalance: int = 0
    elsewhere: int
    unused: int = 0
    unused_ipus: tuple[int, ...] = ()
    work: Mapping[int, int]
    schedule: schedules.Schedule | None = None


def split_waiting_cycles(
    index: ProgramIndex, profile: machine.Profile, *, overlaps_io: bool = False
) -> Waiting:
    """Splits the cycles that IPUs wait in a call by cause.

    Args:
      index: the index of the modelled program.
      profile: its modelled profile.
      overlaps_io: whether queues overlap with tasks, which then do not wait for them.
    """
    busy: list[int] = (
        trace.count_busy_cycles(profile.steps.trace, profile.num_ipus).sum(axis=1).tolist()
    )
    call_cycles = int(profile.cycles)
    unused_ipus = tuple(
        ipu for ipu, busy_cycles in enumerate(busy) if call_cycles and not busy_cycles
    )
    unused = call_cycles * len(unused_ipus)
    waiting_cycles = sum(max(0, call_cycles - worked) for worked in busy) - unused
    waiting_without_pipeline = Waiting(
        elsewhere=waiting_cycles, unused=unused, unused_ipus=unused_ipus, work={}
    )
    pipeline = profile.pipeline
    if index.first_pipeline_schedule is None or pipeline is None:
        return waiting_without_pipeline
    schedule, runs = index.first_pipeline_schedule
    cycles = {task: int(task_cycles) for task, task_cycles in pipeline.stage_cycles.items()}
    host_cycles: dict[machine.TaskOf, int] = {} if overlaps_io else _host_cycles_of_tasks(profile)
    compute_cycles = {
        task: max(0, each - host_cycles.get(task, 0)) for task, each in cycles.items()
    }
    bubble, differing_cycles = _count_idle_cycles(schedule, cycles)
    _, differing_without_host = _count_idle_cycles(schedule, compute_cycles)
    _, differing_when_even = _count_idle_cycles(schedule, _average_over_stages(compute_cycles))
    sharing = min(differing_when_even, differing_without_host, differing_cycles)
    imbalance = min(differing_without_host, differing_cycles) - sharing
    host = differing_cycles - sharing - imbalance
    causes = {"bubble": bubble, "sharing": sharing, "imbalance": imbalance, "host": host}
    uncaused_cycles = waiting_cycles
    for cause, waited in causes.items():
        causes[cause] = min(waited * runs, uncaused_cycles)
        uncaused_cycles -= causes[cause]
    return dc.replace(
        waiting_without_pipeline,
        **causes,
        elsewhere=uncaused_cycles,
        work=dict(machine.work_of_tick(schedule, tuple(compute_cycles), compute_cycles)[0]),
        schedule=schedule,
    )


def _host_cycles_of_tasks(profile: machine.Profile) -> dict[machine.TaskOf, int]:
    """Returns the queue cycles of a task of each stage and phase, on the IPU that has most."""
    pipeline = profile.pipeline
    tasks = (
        None
        if pipeline is None
        else _find_forward_tasks(profile.steps.trace, len(pipeline.stage_cycles))
    )
    if pipeline is None or tasks is None:
        return {}
    # The bodies are in the order of phases, and those of a phase in that of stages.
    keys = sorted(
        pipeline.stage_cycles, key=lambda key: (machine.TASK_PHASES.index(key[1]), key[0])
    )
    return {
        key: int(trace.count_busy_cycles(body, profile.num_ipus)[:, _HOST].max())
        for key, body in zip(keys, tasks.bodies, strict=True)
    }


def _find_forward_tasks(node: trace.Trace, bodies: int) -> trace.Tasks | None:
    """Returns the first tasks in a trace with so many bodies that go forward; None if none."""
    if isinstance(node, trace.Tasks):
        forward = trace.PHASES.index(schedules.Phase.FORWARD.word)
        fits = len(node.bodies) == bodies and bool((node.phase == forward).any())
        return node if fits else None
    tasks_of_parts = (
        _find_forward_tasks(part, bodies) for part, _ in trace.distinct_children(node)
    )
    return next((tasks for tasks in tasks_of_parts if tasks is not None), None)


def _count_idle_cycles(
    schedule: schedules.Schedule, cycles: Mapping[machine.TaskOf, int]
) -> tuple[int, int]:
    """Returns the cycles of a run that IPUs wait as tasks are missing, and as tasks differ."""
    idle_cycles = machine.count_idle_cycles(schedule, cycles)
    return sum(idle_cycles.missing.values()), sum(idle_cycles.differing.values())


def _average_over_stages(cycles: Mapping[machine.TaskOf, int]) -> dict[machine.TaskOf, int]:
    """Returns the cycles as if all stages took the average of their phase."""
    phase_cycles, counts = collections.Counter[str](), collections.Counter[str]()
    for (_, phase), task_cycles in cycles.items():
        phase_cycles[phase] += task_cycles
        counts[phase] += 1
    return {(stage, phase): phase_cycles[phase] // counts[phase] for stage, phase in cycles}
