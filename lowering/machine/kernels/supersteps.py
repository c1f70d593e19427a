"""The supersteps of one IPU: sync, exchange, compute, one after the other."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import math
from collections.abc import Generator, Iterable, Sequence

from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.totals import Total
from lowering.machine.program_tree import ProgramNode
from lowering.machine.target import Target
from lowering.machine.transfers.links import exchange_cycles


class Supersteps:
    """A clock, and what has been done up to it.

    Args:
      target: the chip.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rows: list[tr.Row] = []
        self._parts: list[tuple[int, tr.Trace]] = []
        self._begin = 0
        self._operation = tr.NONE
        self.nodes: list[ProgramNode] = []
        self.clock = 0
        self.compute = 0.0
        self.exchange = 0.0

    def run(self, name: str, origin: str, phases: Sequence[Phase], repeats: int = 1) -> None:
        """Supersteps: a sync, an exchange if there is data to receive, and compute."""
        if repeats > 1:
            self._repeat(name, origin, phases, repeats)
            return
        for phase in phases:
            if phase.times > 1:
                self._repeat(name, origin, [dc.replace(phase, times=1)], phase.times)
                continue
            title = f"{name}/{phase.name}"
            self.step("sync", title, origin, self._target.sync_cycles)
            if phase.exchange_bytes:
                cycles = exchange_cycles(self._target, phase.exchange_bytes)
                self.exchange += cycles
                self.step("exchange", title, origin, cycles)
            if phase.compute:
                cycles = math.ceil(phase.compute)
                self.compute += cycles
                self.step("compute", title, origin, cycles)

    def _repeat(self, name: str, origin: str, phases: Sequence[Phase], repeats: int) -> None:
        body = Supersteps(self._target)
        body._operation = self._operation
        body.run(name, origin, phases)
        self.append(tr.loop(body.trace(), repeats, body.clock), body.clock * repeats)
        self.compute += body.compute * repeats
        self.exchange += body.exchange * repeats

    @contextlib.contextmanager
    def timed(self, total: Total, number: int) -> Generator[None]:
        """Whatever runs inside counts for a total, and is one operation of the program tree.

        Args:
          total: what is added to.
          number: of the operation.
        """
        before, self._operation = (self.clock, self.compute, self.exchange), number
        yield
        self._operation = tr.NONE
        total.cycles += self.clock - before[0]
        total.compute_cycles += self.compute - before[1]
        total.exchange_cycles += self.exchange - before[2]
        if cycles := self.clock - before[0]:
            node = ProgramNode(
                kind="operation",
                name=total.title,
                origin=total.origin,
                cycles=cycles,
                operation=number,
            )
            self.nodes.append(node)

    def append(self, part: tr.Trace, cycles: int, nodes: Iterable[ProgramNode] = ()) -> None:
        """Something that has been modelled before, and what it is in the program tree."""
        self.nodes.extend(nodes)
        self._close()
        self._parts.append((self.clock, part))
        self.clock += cycles
        self._begin = self.clock

    def trace(self) -> tr.Trace:
        """All of them."""
        self._close()
        return self._parts[0][1] if len(self._parts) == 1 else tr.group(self._parts)

    def step(self, kind: str, name: str, origin: str, cycles: int) -> None:
        """One of `trace.KINDS`."""
        start = self.clock - self._begin
        self._rows.append((0, kind, name, origin, start, cycles, self._operation))
        self.clock += cycles

    def _close(self) -> None:
        if self._rows:
            self._parts.append((self._begin, tr.block(self._rows)))
            self._rows = []
        self._begin = self.clock
