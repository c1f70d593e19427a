"""A trace read as a list of steps, or as columns."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, overload

import numpy as np

from lowering.machine.trace.columns import expand_columns
from lowering.machine.trace.trace_tree import (
    KINDS,
    NONE,
    PHASES,
    Block,
    Group,
    Loop,
    On,
    Tasks,
    Trace,
)


@dc.dataclass(frozen=True, slots=True)
class Step:
    """A piece of work that one IPU does without a break.

    Attributes:
      ipu: which IPU of a replica.
      kind: "compute", "exchange", "sync", "inter_ipu", "host" or "remote".
      name: the name of the work.
      start_cycle: the cycle of its start, from the start of the call.
      cycles: its length.
      stage: the pipeline stage that it belongs to, or None.
      micro_batch: the micro-batch of the pipeline, or None.
      phase: "fwd", "bwd" or "update", or None outside of pipelines.
      origin: the user's `file:line`, or "".
      operation: the index of its operation among the report's, or None.
      direction: the direction of that operation: "forward", "backward", "update", or None.
    """

    ipu: int
    kind: str
    name: str
    start_cycle: int
    cycles: int
    stage: int | None = None
    micro_batch: int | None = None
    phase: str | None = None
    origin: str = ""
    operation: int | None = None
    direction: str | None = None


class Operation(Protocol):
    """The operation that steps belong to; see `OperationTotal`."""

    @property
    def ipu(self) -> int:
        """The IPU that runs it."""
        ...

    @property
    def number(self) -> int:
        """The number of the operation, which its steps carry."""
        ...

    @property
    def direction(self) -> str | None:
        """The direction of the pass that it belongs to."""
        ...


_ReportEntries: TypeAlias = Mapping[tuple[int, int], tuple[int | None, str | None]]
"""The index in the report and the direction of each operation, by IPU and number."""

_Labels: TypeAlias = tuple[int | None, int | None, str | None]
"""The stage, micro-batch and phase of the task that a step is a part of."""


_UNKNOWN = (None, None)


class Steps(Sequence[Step]):
    """The steps of one call, each built when it is read.

    They come in the order of the tree: children of a group and tasks as they were given, each
    with all its steps, iterations one after the other. Within one IPU and body that is the order
    in time; between IPUs, and between tasks, `start_cycle` tells.

    `steps[i]` takes time in the depth of the tree and the logarithm of its width. A slice is a
    list.

    Args:
      trace: the tree.
      operations: the operations of the report that steps belong to, if there are any.
    """

    __slots__ = ("_found", "trace")

    def __init__(self, trace: Trace, operations: Sequence[Operation] = ()):
        self.trace = trace
        self._found = {
            (o.ipu, o.number): (i, o.direction)
            for i, o in enumerate(operations)
            if o.number != NONE
        }

    def __len__(self) -> int:
        return self.trace.num_steps

    @overload
    def __getitem__(self, index: int) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...

    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return list(_walk_steps(self.trace, self._found, start, stop))
            return [self[i] for i in range(start, stop, step)]
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"step {index} of {len(self)}")
        return next(_walk_steps(self.trace, self._found, i, i + 1))

    def __iter__(self) -> Iterator[Step]:
        return _walk_steps(self.trace, self._found, 0, len(self))

    def __repr__(self) -> str:
        return f"<{len(self)} steps in {self.trace.span} cycles>"

    def columns(self, limit: int | None = None) -> dict[str, np.ndarray]:
        """Returns the first `limit` steps (None: all) as arrays, to draw or to add up.

        Returns:
          `ipu` int32; `kind` uint8, index into `KINDS`; `name` int32, index into `names` and
          `origins`; `start_cycle` and `cycles` int64; `stage` and `micro_batch` int32, `phase`
          int8, index into `PHASES`, and `operation` int32, index into the report's, all four `NONE`
          where a step has none; and `names` and `origins`, arrays of strings, each pair of them
          once.
        """
        out = expand_columns(self.trace, limit)
        out["operation"] = self._report_indices(out["ipu"], out["operation"])
        return out

    def _report_indices(self, ipus: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Returns the indices of the operations with these numbers on these IPUs."""
        # The last column is that of `NONE`.
        rows, width = (int(column.max(initial=NONE)) + 2 for column in (ipus, numbers))
        index_table = np.full((rows, width), NONE, dtype=np.int32)
        for (ipu, number), (index, _) in self._found.items():
            if ipu < rows and number < width - 1:
                index_table[ipu, number] = index
        return index_table[ipus, numbers]


def _walk_steps(
    trace: Trace,
    report_entries: _ReportEntries,
    start: int,
    stop: int,
    cycle: int = 0,
    labels: _Labels = (None, None, None),
    fixed_ipu: int | None = None,
) -> Iterator[Step]:
    """Yields the steps from `start` to `stop` of a trace that begins in a cycle."""
    if start >= stop:
        return
    if isinstance(trace, Block):
        part = slice(start, stop)
        for ipu, kind, name, child_start, cycles in zip(
            _numbers_in(trace.ipu, part),
            _numbers_in(trace.kind, part),
            _numbers_in(trace.name, part),
            _numbers_in(trace.start, part),
            _numbers_in(trace.cycles, part),
            strict=True,
        ):
            step_ipu = ipu if fixed_ipu is None else fixed_ipu
            title, line = trace.names[name], trace.origins[name]
            report_entry = report_entries.get((step_ipu, trace.operations[name]), _UNKNOWN)
            yield Step(
                step_ipu,
                KINDS[kind],
                title,
                cycle + child_start,
                cycles,
                *labels,
                line,
                *report_entry,
            )
    elif isinstance(trace, On):
        yield from _walk_steps(
            trace.body,
            report_entries,
            start,
            stop,
            cycle,
            labels,
            trace.ipu if fixed_ipu is None else fixed_ipu,
        )
    elif isinstance(trace, Loop):
        size = trace.body.num_steps
        for i in range(start // size, -(-stop // size)):
            low, high = max(start - i * size, 0), min(stop - i * size, size)
            yield from _walk_steps(
                trace.body, report_entries, low, high, cycle + i * trace.period, labels, fixed_ipu
            )
    else:
        i = int(np.searchsorted(trace.first, start, side="right")) - 1
        while i < len(trace.first) - 1 and (first_step := int(trace.first[i])) < stop:
            part, child_start, child_labels = _child_at(trace, i)
            low, high = max(start - first_step, 0), min(stop - first_step, part.num_steps)
            yield from _walk_steps(
                part,
                report_entries,
                low,
                high,
                cycle + child_start,
                child_labels or labels,
                fixed_ipu,
            )
            i += 1


def _numbers_in(column: np.ndarray, part: slice) -> list[int]:
    return column[part].tolist()


def _child_at(trace: Group | Tasks, i: int) -> tuple[Trace, int, _Labels | None]:
    """Returns the i-th child or task: its trace, its start, and the labels that it sets."""
    if isinstance(trace, Group):
        return trace.children[i], int(trace.offset[i]), None
    body, start = trace.bodies[int(trace.which[i])], int(trace.start[i])
    if trace.phase[i] == NONE:
        return body, start, None
    stage, micro_batch = int(trace.stage[i]), int(trace.micro_batch[i])
    known_stage = None if stage == NONE else stage
    known_micro_batch = None if micro_batch == NONE else micro_batch
    return body, start, (known_stage, known_micro_batch, PHASES[int(trace.phase[i])])
