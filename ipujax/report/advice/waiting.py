"""Why IPUs wait: the bubble of a pipeline, what shares a tick with it, or something else."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Mapping

from ipujax.report.advice.index import Index
from lowering import machine, schedules, trace

_HOST = trace.KINDS.index("host")


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
    schedule: schedules.Schedule | None = None


def waiting(index: Index, profile: machine.Profile, *, overlaps_io: bool = False) -> Waiting:
    """Splits what a call waits.

    Args:
      index: what was modelled.
      profile: what came of it.
      overlaps_io: whether queues work beside the tasks, which then do not wait for them.
    """
    busy: list[int] = trace.busy(profile.steps.trace, profile.num_ipus).sum(axis=1).tolist()
    call = int(profile.cycles)
    unused_ipus = tuple(ipu for ipu, worked in enumerate(busy) if call and not worked)
    unused = call * len(unused_ipus)
    whole = sum(max(0, call - worked) for worked in busy) - unused
    unpiped = Waiting(elsewhere=whole, unused=unused, unused_ipus=unused_ipus, work={})
    lines = profile.pipeline
    if index.first_pipeline is None or lines is None:
        return unpiped
    schedule, runs = index.first_pipeline
    cycles = {task: int(each) for task, each in lines.stage_cycles.items()}
    hosts: dict[machine.TaskOf, int] = {} if overlaps_io else _host_cycles(profile)
    computed = {task: max(0, each - hosts.get(task, 0)) for task, each in cycles.items()}
    bubble, within = _idle(schedule, cycles)
    _, without_host = _idle(schedule, computed)
    _, evened = _idle(schedule, _evened(computed))
    sharing = min(evened, without_host, within)
    imbalance = min(without_host, within) - sharing
    host = within - sharing - imbalance
    causes = {"bubble": bubble, "sharing": sharing, "imbalance": imbalance, "host": host}
    left = whole
    for cause, waited in causes.items():
        causes[cause] = min(waited * runs, left)
        left -= causes[cause]
    return dc.replace(
        unpiped,
        **causes,
        elsewhere=left,
        pipeline=int(lines.cycles) * len(machine.ipus_of(schedule)) * runs,
        work=dict(machine.tick_work(schedule, tuple(computed), computed)[0]),
        schedule=schedule,
    )


def _host_cycles(profile: machine.Profile) -> dict[machine.TaskOf, int]:
    """Cycles with queues of one task of each stage and phase, on the IPU that has most."""
    lines = profile.pipeline
    tasks = None if lines is None else _traced(profile.steps.trace, len(lines.stage_cycles))
    if lines is None or tasks is None:
        return {}
    # The bodies are in the order of phases, and those of a phase in that of stages.
    keys = sorted(lines.stage_cycles, key=lambda key: (machine.TASK_PHASES.index(key[1]), key[0]))
    return {
        key: int(trace.busy(body, profile.num_ipus)[:, _HOST].max())
        for key, body in zip(keys, tasks.bodies, strict=True)
    }


def _traced(node: trace.Trace, bodies: int) -> trace.Tasks | None:
    """The first tasks in a trace that have so many bodies and go forward."""
    if isinstance(node, trace.Tasks):
        forward = trace.PHASES.index(schedules.Phase.FORWARD.word)
        fits = len(node.bodies) == bodies and bool((node.phase == forward).any())
        return node if fits else None
    inside = (_traced(part, bodies) for part, _ in trace.parts(node))
    return next((tasks for tasks in inside if tasks is not None), None)


def _idle(schedule: schedules.Schedule, cycles: Mapping[machine.TaskOf, int]) -> tuple[int, int]:
    """Cycles of one run that IPUs wait since tasks are missing, and since tasks differ."""
    found = machine.idle(schedule, cycles)
    return sum(found.missing.values()), sum(found.differing.values())


def _evened(cycles: Mapping[machine.TaskOf, int]) -> dict[machine.TaskOf, int]:
    """All stages as long as they are on average."""
    sums, counts = collections.Counter[str](), collections.Counter[str]()
    for (_, phase), each in cycles.items():
        sums[phase] += each
        counts[phase] += 1
    return {(stage, phase): sums[phase] // counts[phase] for stage, phase in cycles}
