"""What the tasks of a pipeline do with queues, found in the trace of its run."""

from __future__ import annotations

from lowering import machine, schedules, trace

_HOST = trace.KINDS.index("host")


def host_cycles(profile: machine.Profile) -> dict[tuple[int, str], int]:
    """Cycles with queues of one task of each stage and phase, on the IPU that has most."""
    lines = profile.pipeline
    tasks = None if lines is None else _tasks(profile.steps.trace, len(lines.stage_cycles))
    if lines is None or tasks is None:
        return {}
    # The bodies are in the order of phases, and those of a phase in that of stages.
    keys = [
        (stage, phase)
        for phase in machine.TASK_PHASES
        for stage in range(lines.stages)
        if (stage, phase) in lines.stage_cycles
    ]
    return {
        key: int(trace.busy(body, profile.num_ipus)[:, _HOST].max())
        for key, body in zip(keys, tasks.bodies, strict=True)
    }


def _tasks(node: trace.Trace, bodies: int) -> trace.Tasks | None:
    """The first that has so many bodies and goes forward."""
    match node:
        case trace.Tasks():
            forward = trace.PHASES.index(schedules.Phase.FORWARD.word)
            fits = len(node.bodies) == bodies and bool((node.phase == forward).any())
            return node if fits else None
        case trace.Block():
            return None
        case trace.Loop() | trace.On():
            return _tasks(node.body, bodies)
        case trace.Group():
            found = (_tasks(child, bodies) for child in node.children)
            return next((one for one in found if one is not None), None)
