"""The first part of a trace, by time: for those who can show only so many steps."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from lowering.machine.trace.tree import (
    Block,
    Group,
    Loop,
    On,
    Tasks,
    Trace,
    group,
    loop,
    on,
    tasks,
)


def first_steps(trace: Trace, most: int) -> tuple[Trace, int]:
    """The steps of a trace that start first, at least `most` of them if there are as many.

    The tree is cut and not unrolled, so a long loop costs no more than a short one.

    Returns:
      The trace of all steps that start before a cycle, and that cycle.
    """
    low, high = 0, trace.span + 1
    if trace.num_steps <= most:
        return trace, high
    while high - low > 1:
        middle = (low + high) // 2
        if early(trace, middle).num_steps < most:
            low = middle
        else:
            high = middle
    return early(trace, high), high


def early(trace: Trace, before: int) -> Trace:
    """The steps of a trace that start before a cycle, each of its full length."""
    if before > trace.span or not trace.num_steps:
        return trace
    match trace:
        case Block():
            return _early_block(trace, before)
        case On():
            return on(early(trace.body, before), trace.ipu)
        case Loop():
            return _early_loop(trace, before)
        case Group():
            pairs = zip(trace.offset.tolist(), trace.children, strict=True)
            begun = ((at, part) for at, part in pairs if at < before)
            return group([(at, early(part, before - at)) for at, part in begun])
        case Tasks():
            return _early_tasks(trace, before)


def _early_block(block: Block, before: int) -> Block:
    kept = block.start < before
    start, cycles = block.start[kept], block.cycles[kept]
    return dc.replace(
        block,
        ipu=block.ipu[kept],
        kind=block.kind[kept],
        name=block.name[kept],
        start=start,
        cycles=cycles,
        num_steps=int(kept.sum()),
        span=int((start + cycles).max(initial=0)),
    )


def _early_loop(trace: Loop, before: int) -> Trace:
    """Whole iterations as a loop; the others, of which few have begun, one by one."""
    if not trace.period:
        return loop(early(trace.body, before), trace.count, 0)
    begun = min(trace.count, -(-before // trace.period))
    whole = min(begun, max(0, (before - trace.body.span - 1) // trace.period + 1))
    parts: list[tuple[int, Trace]] = [(0, loop(trace.body, whole, trace.period))]
    for at in range(whole * trace.period, begun * trace.period, trace.period):
        parts.append((at, early(trace.body, before - at)))
    return group(parts)


def _early_tasks(trace: Tasks, before: int) -> Tasks:
    """Those that have begun; the parts of those that have not ended are bodies of their own."""
    spans = np.array([body.span for body in trace.bodies], dtype=np.int64)
    begun = np.flatnonzero(trace.start < before)
    which, bodies = trace.which[begun].copy(), list(trace.bodies)
    for i in np.flatnonzero(trace.start[begun] + spans[which] >= before).tolist():
        bodies.append(early(trace.bodies[which[i]], before - int(trace.start[begun[i]])))
        which[i] = len(bodies) - 1
    labels = (trace.stage[begun], trace.micro_batch[begun], trace.phase[begun])
    return tasks(bodies, which, trace.start[begun], *labels)
