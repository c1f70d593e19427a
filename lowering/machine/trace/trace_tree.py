"""The trace tree: steps one by one in its leaves, and nodes that combine traces above them."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from lowering.ground import InternalError

KINDS = ("compute", "exchange", "sync", "inter_ipu", "host", "remote")
"""The kinds of steps; arrays hold the index."""

PHASES = ("fwd", "bwd", "update")
"""The phases of pipeline tasks; arrays hold the index."""

NONE = -1
"""The entry of arrays for a stage, micro-batch, phase or operation that a step does not have."""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TraceNode:
    """The base of all traces, with their size.

    Attributes:
      num_steps: the number of steps, all iterations and tasks together.
      span: cycles from its start to the end of the last step to end.
    """

    num_steps: int
    span: int


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block(_TraceNode):
    """A leaf of the tree: steps one by one, in arrays of the same length.

    Attributes:
      ipu: int32, which IPU.
      kind: uint8, index into `KINDS`.
      name: int32, index into `names`, `origins` and `operations`.
      start: int64, cycles from the start of the block.
      cycles: int64, for how long.
      names: the names of steps; one name may be there with several origins.
      origins: the user's `file:line` of each of them, or "".
      operations: the number of the operation that each of them belongs to, or `NONE`.
    """

    ipu: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    start: np.ndarray
    cycles: np.ndarray
    names: tuple[str, ...]
    origins: tuple[str, ...]
    operations: tuple[int, ...]


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group(_TraceNode):
    """Traces beside or after each other, each starting at its own offset.

    Attributes:
      children: the traces.
      offset: int64 [children], cycles from the start of the group to that of each.
      first: int64 [children + 1], how many steps come before each, and in all.
    """

    children: tuple[Trace, ...]
    offset: np.ndarray
    first: np.ndarray


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class On(_TraceNode):
    """The steps of a body, all on one IPU; several IPUs can share the body.

    Attributes:
      body: the steps, whose own IPU does not count.
      ipu: the IPU that runs them.
    """

    body: Trace
    ipu: int


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop(_TraceNode):
    """A body that is repeated at equal distances.

    Attributes:
      body: the steps of one iteration.
      count: how many iterations there are.
      period: cycles from the start of one iteration to that of the next.
    """

    body: Trace
    count: int
    period: int


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks(_TraceNode):
    """The tasks of a pipeline: a few bodies, run many times, each time with its own labels.

    One without a phase has no labels at all; its steps keep those that they have or inherit.

    Attributes:
      bodies: the steps of each kind of task.
      which: int32 [tasks], index into `bodies`.
      start: int64 [tasks], cycles from the start of the pipeline.
      stage: int32 [tasks], or `NONE`.
      micro_batch: int32 [tasks], or `NONE`.
      phase: int8 [tasks], index into `PHASES`, or `NONE`.
      first: int64 [tasks + 1], how many steps come before each task, and in all.
    """

    bodies: tuple[Trace, ...]
    which: np.ndarray
    start: np.ndarray
    stage: np.ndarray
    micro_batch: np.ndarray
    phase: np.ndarray
    first: np.ndarray


Trace: TypeAlias = Block | Group | On | Loop | Tasks

Row: TypeAlias = tuple[int, str, str, str, int, int] | tuple[int, str, str, str, int, int, int]
"""A step: IPU, kind, name, origin, start, cycles, and the number of its operation if it has one."""


def build_block(rows: Iterable[Row]) -> Block:
    """Builds a block of steps, in the order in which they are to be read.

    Raises:
      InternalError: an unknown kind, or times before the start of the block.
    """
    codes: dict[tuple[str, str, int], int] = {}
    table: list[tuple[int, int, int, int, int]] = []
    for ipu, kind, name, origin, start, cycles, *numbers in rows:
        if kind not in KINDS or min(ipu, start, cycles) < 0:
            raise InternalError(f"no step: {(ipu, kind, name, origin, start, cycles)}")
        operation = numbers[0] if numbers else NONE
        code = codes.setdefault((name, origin, operation), len(codes))
        table.append((ipu, KINDS.index(kind), code, start, cycles))
    ipus, kinds, names, starts, lengths = zip(*table, strict=True) if table else ((),) * 5
    start = np.array(starts, dtype=np.int64)
    cycles = np.array(lengths, dtype=np.int64)
    return Block(
        ipu=np.array(ipus, dtype=np.int32),
        kind=np.array(kinds, dtype=np.uint8),
        name=np.array(names, dtype=np.int32),
        start=start,
        cycles=cycles,
        names=tuple(name for name, _, _ in codes),
        origins=tuple(origin for _, origin, _ in codes),
        operations=tuple(operation for _, _, operation in codes),
        num_steps=len(table),
        span=int((start + cycles).max(initial=0)),
    )


def group_traces(children: Iterable[tuple[int, Trace]]) -> Group:
    """Combines traces, each with the cycles from the start of the group to its own.

    Raises:
      InternalError: a trace before the start of the group.
    """
    pairs = list(children)
    if any(offset < 0 for offset, _ in pairs):
        raise InternalError("a child of a group starts before the group")
    first = _first_indices(np.array([trace.num_steps for _, trace in pairs], dtype=np.int64))
    return Group(
        children=tuple(trace for _, trace in pairs),
        offset=np.array([offset for offset, _ in pairs], dtype=np.int64),
        first=first,
        num_steps=int(first[-1]),
        span=max((offset + trace.span for offset, trace in pairs), default=0),
    )


def assign_to_ipu(body: Trace, ipu: int) -> On:
    """Returns the steps of a body, all on one IPU.

    Raises:
      InternalError: a negative IPU.
    """
    if ipu < 0:
        raise InternalError(f"there is no IPU {ipu}")
    return On(body=body, ipu=ipu, num_steps=body.num_steps, span=body.span)


def repeat_trace(body: Trace, count: int, period: int) -> Loop:
    """Repeats a body `count` times; the i-th iteration starts i * period cycles after the first.

    Raises:
      InternalError: a negative count or period.
    """
    if count < 0 or period < 0:
        raise InternalError(f"{count} iterations of {period} cycles")
    return Loop(
        body=body,
        count=count,
        period=period,
        num_steps=count * body.num_steps,
        span=(count - 1) * period + body.span if count else 0,
    )


def build_tasks(
    bodies: Sequence[Trace],
    which: np.ndarray | Sequence[int],
    start: np.ndarray | Sequence[int],
    stage: np.ndarray | Sequence[int],
    micro_batch: np.ndarray | Sequence[int],
    phase: np.ndarray | Sequence[str],
) -> Tasks:
    """Builds the tasks of a pipeline, in the order in which they are to be read.

    Args:
      bodies: the steps of each kind of task.
      which: the kind of each task, an index into `bodies`.
      start: cycles from the start of the pipeline to that of each task.
      stage: the stage of each, or `NONE`.
      micro_batch: the micro-batch of each, or `NONE`.
      phase: words, or indices of `PHASES`, or `NONE`.

    Raises:
      InternalError: arrays of different lengths, or indices that point nowhere.
    """
    if not isinstance(phase, np.ndarray):
        phase = np.array([PHASES.index(word) for word in phase], dtype=np.int8)
    which, start = np.asarray(which, np.int32), np.asarray(start, np.int64)
    stage, micro_batch = np.asarray(stage, np.int32), np.asarray(micro_batch, np.int32)
    if any(column.shape != which.shape for column in (start, stage, micro_batch, phase)):
        raise InternalError("columns of tasks of different lengths")
    if which.size and (
        min(start.min(), which.min()) < 0
        or min(phase.min(), stage.min(), micro_batch.min()) < NONE
        or which.max() >= len(bodies)
        or phase.max() >= len(PHASES)
        or np.maximum(stage, micro_batch)[phase == NONE].max(initial=NONE) > NONE
    ):
        raise InternalError("a task without a body or a start, or with labels that do not exist")
    first = _first_indices(np.array([body.num_steps for body in bodies], dtype=np.int64)[which])
    spans = np.array([body.span for body in bodies], dtype=np.int64)
    return Tasks(
        bodies=tuple(bodies),
        which=which,
        start=start,
        stage=stage,
        micro_batch=micro_batch,
        phase=phase.astype(np.int8),
        first=first,
        num_steps=int(first[-1]),
        span=int((start + spans[which]).max(initial=0)),
    )


def repeat_trace_at_cycles(body: Trace, start: np.ndarray | Sequence[int]) -> Tasks:
    """Repeats a body without labels at the given cycles, which need not be at equal distances.

    Args:
      body: the steps of each repetition.
      start: the first cycle of each.
    """
    none = np.full(len(start), NONE, dtype=np.int32)
    return build_tasks([body], np.zeros(len(start), dtype=np.int32), start, none, none, none)


def distinct_children(trace: Trace) -> list[tuple[Trace, int]]:
    """Returns the children of a trace, each different one once, with their counts."""
    match trace:
        case Block():
            return []
        case Loop():
            return [(trace.body, trace.count)]
        case On():
            return [(trace.body, 1)]
        case Group():
            counts = collections.Counter(map(id, trace.children))
            return [(c, counts[key]) for key, c in {id(c): c for c in trace.children}.items()]
        case Tasks():
            times = np.bincount(trace.which, minlength=len(trace.bodies)).tolist()
            return list(zip(trace.bodies, times, strict=True))


def _first_indices(counts: np.ndarray) -> np.ndarray:
    """Returns int64 [n + 1]: how many steps come before each entry, and in all."""
    first = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=first[1:])
    return first
