"""The supersteps of one IPU: sync, exchange, compute, one after the other."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import math
from collections.abc import Generator, Sequence

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.totals import Total
from lowering.machine.target import Target
from lowering.machine.transfers.links import exchange_cycles


class Supersteps:
    """A clock, and what has been done up to it.

    Args:
      target: the chip.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rows: list[tuple[int, str, str, int, int]] = []
        self._parts: list[tuple[int, tr.Trace]] = []
        self._begin = 0
        self.clock = 0
        self.compute = 0.0
        self.exchange = 0.0

    def nested(self) -> Supersteps:
        """Steps of a body, which start at 0."""
        return Supersteps(self._target)

    def run(self, name: str, phases: Sequence[Phase], repeats: int) -> None:
        """Supersteps: a sync, an exchange if there is data to receive, and compute."""
        if repeats > 1:
            body = self.nested()
            body.run(name, phases, 1)
            self.append(tr.loop(body.trace(), repeats, body.clock), body.clock * repeats)
            self.compute += body.compute * repeats
            self.exchange += body.exchange * repeats
            return
        for phase in phases:
            title = f"{name}/{phase.name}"
            self._row("sync", title, self._target.sync_cycles)
            if phase.exchange_bytes:
                cycles = exchange_cycles(self._target, phase.exchange_bytes)
                self.exchange += cycles
                self._row("exchange", title, cycles)
            if phase.compute:
                cycles = math.ceil(phase.compute)
                self.compute += cycles
                self._row("compute", title, cycles)

    @contextlib.contextmanager
    def timed(self, total: Total) -> Generator[None]:
        """Whatever runs inside counts for a total."""
        before = (self.clock, self.compute, self.exchange)
        yield
        total.cycles += self.clock - before[0]
        total.compute_cycles += self.compute - before[1]
        total.exchange_cycles += self.exchange - before[2]

    def between_replicas(self, name: str, cycles: int) -> None:
        """Time on the links to other replicas."""
        self._row("inter_ipu", name, cycles)

    def append(self, part: tr.Trace, cycles: int) -> None:
        """Something that has been modelled before."""
        self._close()
        self._parts.append((self.clock, part))
        self.clock += cycles
        self._begin = self.clock

    def trace(self) -> tr.Trace:
        """All of them."""
        self._close()
        return self._parts[0][1] if len(self._parts) == 1 else tr.group(self._parts)

    def _row(self, kind: str, name: str, cycles: int) -> None:
        self._rows.append((0, kind, name, self.clock - self._begin, cycles))
        self.clock += cycles

    def _close(self) -> None:
        if self._rows:
            self._parts.append((self._begin, tr.block(self._rows)))
            self._rows = []
        self._begin = self.clock


@functools.lru_cache(maxsize=1024)
def on_ipu(trace: tr.Trace, ipu: int) -> tr.Trace:
    """The same steps on another IPU."""
    if not ipu:
        return trace
    match trace:
        case tr.Block():
            return dc.replace(trace, ipu=np.full_like(trace.ipu, ipu))
        case tr.Group():
            return dc.replace(trace, children=tuple(on_ipu(c, ipu) for c in trace.children))
        case tr.Loop():
            return dc.replace(trace, body=on_ipu(trace.body, ipu))
        case tr.Tasks():
            return dc.replace(trace, bodies=tuple(on_ipu(b, ipu) for b in trace.bodies))
