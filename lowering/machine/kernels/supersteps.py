"""The supersteps of one IPU: sync, exchange, compute, one after the other."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import math
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.totals import Total
from lowering.machine.program_tree import ProgramNode
from lowering.machine.target import Target
from lowering.machine.transfers.links import exchange_cycles

_Row: TypeAlias = tuple[int, str, str, str, int, int, int]
"""A step with the number of its operation, or `trace.NONE`; see `trace.Row`."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Steps that may run again, as those of equal operations do.

    Attributes:
      rows: the steps, from cycle 0 on.
      cycles: from start to end.
      compute: cycles of compute.
      exchange: cycles of exchange.
      exchange_bytes: the bytes of all exchanges.
      nodes: their nodes of the program tree.
    """

    rows: tuple[_Row, ...]
    cycles: int
    compute: float
    exchange: float
    exchange_bytes: float
    nodes: tuple[ProgramNode, ...]


class Mark(NamedTuple):
    """Where a stretch starts: the state of `Supersteps` then."""

    clock: int
    compute: float
    exchange: float
    exchange_bytes: float
    parts: int
    rows: int
    nodes: int


class Supersteps:
    """A clock, and the trace and nodes of everything that has run up to it.

    Args:
      target: the chip.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rows: list[_Row] = []
        self._parts: list[tuple[int, tr.Trace]] = []
        self._begin = 0
        self._operation = tr.NONE
        self.nodes: list[ProgramNode] = []
        self.clock = 0
        self.compute = 0.0
        self.exchange = 0.0
        self.exchange_bytes = 0.0

    def run_phases(self, name: str, origin: str, phases: Sequence[Phase], repeats: int = 1) -> None:
        """Runs phases: for each a sync, an exchange if there is data to receive, and compute."""
        if repeats > 1:
            self._repeat_phases(name, origin, phases, repeats)
            return
        for phase in phases:
            if phase.times > 1:
                self._repeat_phases(name, origin, [dc.replace(phase, times=1)], phase.times)
                continue
            title = f"{name}/{phase.name}"
            self.append_step("sync", title, origin, self._target.sync_cycles)
            if phase.exchange_bytes:
                cycles = exchange_cycles(self._target, phase.exchange_bytes)
                cycles += phase.waiting_cycles
                self.exchange += cycles
                self.exchange_bytes += phase.exchange_bytes
                self.append_step("exchange", title, origin, cycles)
            if phase.compute:
                cycles = math.ceil(phase.compute)
                self.compute += cycles
                self.append_step("compute", title, origin, cycles)

    def _repeat_phases(self, name: str, origin: str, phases: Sequence[Phase], repeats: int) -> None:
        body = Supersteps(self._target)
        body._operation = self._operation
        body.run_phases(name, origin, phases)
        self.append_part(
            tr.repeat_trace(body.build_trace(), repeats, body.clock), body.clock * repeats
        )
        self.compute += body.compute * repeats
        self.exchange += body.exchange * repeats
        self.exchange_bytes += body.exchange_bytes * repeats

    @contextlib.contextmanager
    def count_for_total(self, total: Total, number: int) -> Generator[None]:
        """Counts the cycles of everything that runs inside for a total, as one operation.

        Args:
          total: the total to add to.
          number: the number of the operation.
        """
        start = self.clock, self.compute, self.exchange, self.exchange_bytes
        self._operation = number
        yield
        self._operation = tr.NONE
        total.cycles += self.clock - start[0]
        total.compute_cycles += self.compute - start[1]
        total.exchange_cycles += self.exchange - start[2]
        total.exchange_bytes += self.exchange_bytes - start[3]
        if cycles := self.clock - start[0]:
            node = ProgramNode(
                kind="operation",
                name=total.title,
                origin=total.origin,
                cycles=cycles,
                operation=number,
            )
            self.nodes.append(node)

    def mark_start(self) -> Mark:
        """Marks where a stretch starts."""
        counts = len(self._parts), len(self._rows), len(self.nodes)
        return Mark(self.clock, self.compute, self.exchange, self.exchange_bytes, *counts)

    def find_stretch(self, mark: Mark) -> Stretch | None:
        """Returns the steps since a mark; None if there are parts among them."""
        if mark.parts != len(self._parts):
            return None
        shift = mark.clock - self._begin
        return Stretch(
            rows=tuple(_delay_row(row, -shift) for row in self._rows[mark.rows :]),
            cycles=self.clock - mark.clock,
            compute=self.compute - mark.compute,
            exchange=self.exchange - mark.exchange,
            exchange_bytes=self.exchange_bytes - mark.exchange_bytes,
            nodes=tuple(self.nodes[mark.nodes :]),
        )

    def run_again(self, stretch: Stretch) -> None:
        """Runs a stretch once more."""
        shift = self.clock - self._begin
        self._rows.extend(_delay_row(row, shift) for row in stretch.rows)
        self.nodes.extend(stretch.nodes)
        self.clock += stretch.cycles
        self.compute += stretch.compute
        self.exchange += stretch.exchange
        self.exchange_bytes += stretch.exchange_bytes

    def append_part(self, part: tr.Trace, cycles: int, nodes: Iterable[ProgramNode] = ()) -> None:
        """Appends a part that has been modelled before, with its nodes of the program tree."""
        self.nodes.extend(nodes)
        self._close_block()
        self._parts.append((self.clock, part))
        self.clock += cycles
        self._begin = self.clock

    def build_trace(self) -> tr.Trace:
        """Returns the trace of all steps."""
        self._close_block()
        return self._parts[0][1] if len(self._parts) == 1 else tr.group_traces(self._parts)

    def append_step(self, kind: str, name: str, origin: str, cycles: int) -> None:
        """Appends one step of one of `trace.KINDS`."""
        start = self.clock - self._begin
        self._rows.append((0, kind, name, origin, start, cycles, self._operation))
        self.clock += cycles

    def _close_block(self) -> None:
        if self._rows:
            self._parts.append((self._begin, tr.build_block(self._rows)))
            self._rows = []
        self._begin = self.clock


def _delay_row(row: _Row, cycles: int) -> _Row:
    """Returns a step that starts so many cycles later."""
    ipu, kind, name, origin, start, length, operation = row
    return ipu, kind, name, origin, start + cycles, length, operation
