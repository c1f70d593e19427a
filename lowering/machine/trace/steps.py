"""A trace read as a list of steps, or as columns."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, overload

import numpy as np

from lowering.machine.trace.columns import columns
from lowering.machine.trace.tree import KINDS, NONE, PHASES, Block, Group, Loop, On, Tasks, Trace


@dc.dataclass(frozen=True, slots=True)
class Step:
    """Something that one IPU does without a break.

    Attributes:
      ipu: which IPU of a replica.
      kind: "compute", "exchange", "sync", "inter_ipu", "host" or "remote".
      name: what it does.
      start_cycle: when, counted from the start of the call.
      cycles: for how long.
      stage: of the pipeline stage that it belongs to, or None.
      micro_batch: which of the pipeline's, or None.
      phase: "fwd", "bwd" or "update", or None outside of pipelines.
      origin: the user's `file:line`, or "".
      operation: the place of the operation that it belongs to among the report's, or None.
      direction: of that operation: "forward", "backward", "update", or None.
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
    """What steps belong to; see `OperationTotal`."""

    @property
    def ipu(self) -> int:
        """Where it runs."""
        ...

    @property
    def number(self) -> int:
        """What its steps carry."""
        ...

    @property
    def direction(self) -> str | None:
        """Of the pass that it belongs to."""
        ...


_Found: TypeAlias = Mapping[tuple[int, int], tuple[int | None, str | None]]
"""By IPU and number of an operation its place in the report, and its direction."""

_Labels: TypeAlias = tuple[int | None, int | None, str | None]
"""The stage, micro-batch and phase of the task that a step is a part of."""


_UNKNOWN = (None, None)


class Steps(Sequence[Step]):
    """The steps of one call, lazily: built when they are looked at.

    They come in the order of the tree: children of a group and tasks as they were given, each
    with all its steps, iterations one after the other. Within one IPU and body that is the order
    in time; between IPUs, and between tasks, `start_cycle` tells.

    `steps[i]` takes time in the depth of the tree and the logarithm of its width. A slice is a
    list.

    Args:
      trace: the tree.
      operations: those of the report that steps belong to, if any are known.
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
                return list(_walk(self.trace, self._found, start, stop))
            return [self[i] for i in range(start, stop, step)]
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"step {index} of {len(self)}")
        return next(_walk(self.trace, self._found, i, i + 1))

    def __iter__(self) -> Iterator[Step]:
        return _walk(self.trace, self._found, 0, len(self))

    def __repr__(self) -> str:
        return f"<{len(self)} steps in {self.trace.span} cycles>"

    def columns(self, limit: int | None = None) -> dict[str, np.ndarray]:
        """The first `limit` steps (None: all) as arrays, for those who draw or add them up.

        Returns:
          `ipu` int32; `kind` uint8, index into `KINDS`; `name` int32, index into `names` and
          `origins`; `start_cycle` and `cycles` int64; `stage` and `micro_batch` int32, `phase`
          int8, index into `PHASES`, and `operation` int32, index into the report's, all four `NONE`
          where a step has none; and `names` and `origins`, arrays of strings, each pair of them
          once.
        """
        out = columns(self.trace, limit)
        out["operation"] = self._places(out["ipu"], out["operation"])
        return out

    def _places(self, ipus: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The places of the operations with these numbers on these IPUs."""
        # The last column is that of `NONE`.
        rows, width = (int(column.max(initial=NONE)) + 2 for column in (ipus, numbers))
        places = np.full((rows, width), NONE, dtype=np.int32)
        for (ipu, number), (place, _) in self._found.items():
            if ipu < rows and number < width - 1:
                places[ipu, number] = place
        return places[ipus, numbers]


def _walk(
    trace: Trace,
    found: _Found,
    start: int,
    stop: int,
    cycle: int = 0,
    labels: _Labels = (None, None, None),
    on: int | None = None,
) -> Iterator[Step]:
    """The steps from `start` to `stop` of a trace that begins in a cycle, on that IPU if given."""
    if start >= stop:
        return
    if isinstance(trace, Block):
        part = slice(start, stop)
        columns = (trace.ipu, trace.kind, trace.name, trace.start, trace.cycles)
        for ipu, kind, name, at, cycles in zip(*(c[part].tolist() for c in columns), strict=True):
            place = ipu if on is None else on
            title, line = trace.names[name], trace.origins[name]
            belongs = found.get((place, trace.operations[name]), _UNKNOWN)
            yield Step(place, KINDS[kind], title, cycle + at, cycles, *labels, line, *belongs)
    elif isinstance(trace, On):
        yield from _walk(
            trace.body, found, start, stop, cycle, labels, trace.ipu if on is None else on
        )
    elif isinstance(trace, Loop):
        size = trace.body.num_steps
        for i in range(start // size, -(-stop // size)):
            low, high = max(start - i * size, 0), min(stop - i * size, size)
            yield from _walk(trace.body, found, low, high, cycle + i * trace.period, labels, on)
    else:
        i = int(np.searchsorted(trace.first, start, side="right")) - 1
        while i < len(trace.first) - 1 and (before := int(trace.first[i])) < stop:
            part, at, inner = _part(trace, i)
            low, high = max(start - before, 0), min(stop - before, part.num_steps)
            yield from _walk(part, found, low, high, cycle + at, inner or labels, on)
            i += 1


def _part(trace: Group | Tasks, i: int) -> tuple[Trace, int, _Labels | None]:
    """The i-th child or task: its trace, when it starts, and the labels that it gives."""
    if isinstance(trace, Group):
        return trace.children[i], int(trace.offset[i]), None
    body, start = trace.bodies[trace.which[i]], int(trace.start[i])
    if trace.phase[i] == NONE:
        return body, start, None
    stage, micro_batch = int(trace.stage[i]), int(trace.micro_batch[i])
    known_stage = None if stage == NONE else stage
    known_micro_batch = None if micro_batch == NONE else micro_batch
    return body, start, (known_stage, known_micro_batch, PHASES[trace.phase[i]])
