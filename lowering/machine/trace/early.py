"""The first part of a trace by time, for displays that show only so many steps."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from lowering.machine.trace.trace_tree import (
    Block,
    Group,
    Loop,
    On,
    Tasks,
    Trace,
    assign_to_ipu,
    build_tasks,
    group_traces,
    repeat_trace,
)


def first_steps(trace: Trace, min_steps: int) -> tuple[Trace, int]:
    """Returns the steps of a trace that start first, at least `min_steps` if there are as many.

    The tree is cut and not unrolled, so a long loop costs no more than a short one.

    Returns:
      The trace of all steps that start before a cycle, and that cycle.
    """
    low, high = 0, trace.span + 1
    if trace.num_steps <= min_steps:
        return trace, high
    while high - low > 1:
        middle = (low + high) // 2
        if steps_before(trace, middle).num_steps < min_steps:
            low = middle
        else:
            high = middle
    return steps_before(trace, high), high


def steps_before(trace: Trace, cycle: int) -> Trace:
    """Returns the steps of a trace that start before a cycle, each with its full length."""
    if cycle > trace.span or not trace.num_steps:
        return trace
    match trace:
        case Block():
            return _block_before(trace, cycle)
        case On():
            return assign_to_ipu(steps_before(trace.body, cycle), trace.ipu)
        case Loop():
            return _loop_before(trace, cycle)
        case Group():
            pairs = zip(trace.offset.tolist(), trace.children, strict=True)
            begun = ((start, part) for start, part in pairs if start < cycle)
            return group_traces([(at, steps_before(part, cycle - at)) for at, part in begun])
        case Tasks():
            return _tasks_before(trace, cycle)


def _block_before(block: Block, cycle: int) -> Block:
    starts_before = block.start < cycle
    start, cycles = block.start[starts_before], block.cycles[starts_before]
    return dc.replace(
        block,
        ipu=block.ipu[starts_before],
        kind=block.kind[starts_before],
        name=block.name[starts_before],
        start=start,
        cycles=cycles,
        num_steps=int(starts_before.sum()),
        span=int((start + cycles).max(initial=0)),
    )


def _loop_before(trace: Loop, cycle: int) -> Trace:
    """Returns full iterations as a loop, and the few others that have begun one by one."""
    if not trace.period:
        return repeat_trace(steps_before(trace.body, cycle), trace.count, 0)
    begun = min(trace.count, -(-cycle // trace.period))
    full_iterations = min(begun, max(0, (cycle - trace.body.span - 1) // trace.period + 1))
    parts: list[tuple[int, Trace]] = [(0, repeat_trace(trace.body, full_iterations, trace.period))]
    for start in range(full_iterations * trace.period, begun * trace.period, trace.period):
        parts.append((start, steps_before(trace.body, cycle - start)))
    return group_traces(parts)


def _tasks_before(trace: Tasks, cycle: int) -> Tasks:
    """Returns the tasks that have begun; those that have not ended get bodies of their own."""
    spans = np.array([body.span for body in trace.bodies], dtype=np.int64)
    begun = np.flatnonzero(trace.start < cycle)
    which, bodies = trace.which[begun].copy(), list(trace.bodies)
    unended: list[int] = np.flatnonzero(trace.start[begun] + spans[which] >= cycle).tolist()
    for i in unended:
        bodies.append(steps_before(trace.bodies[int(which[i])], cycle - int(trace.start[begun[i]])))
        which[i] = len(bodies) - 1
    labels = (trace.stage[begun], trace.micro_batch[begun], trace.phase[begun])
    return build_tasks(bodies, which, trace.start[begun], *labels)
