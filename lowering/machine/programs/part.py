"""What the walk over a program finds for a part of it: steps in time, nodes in the program tree."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

from lowering.machine import trace as tr
from lowering.machine.program_tree import NodeKind, ProgramNode


@dc.dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a program.

    Attributes:
      traces: steps, and at which cycle of what is around them they start.
      nodes: in the program tree, one after the other.
    """

    traces: tuple[tuple[int, tr.Trace], ...] = ()
    nodes: tuple[ProgramNode, ...] = ()

    def under(
        self, kind: NodeKind, name: str, origin: str, cycles: int, ipu: int | None = None
    ) -> Part:
        """The same steps, with all nodes under one."""
        node = ProgramNode(
            kind=kind, name=name, origin=origin, cycles=cycles, ipu=ipu, children=self.nodes
        )
        return Part(self.traces, (node,))

    def times(self, count: int) -> Part:
        """The same steps, of which each node runs so often."""
        return Part(self.traces, tuple(dc.replace(node, count=count) for node in self.nodes))


def joined(parts: Iterable[Part]) -> Part:
    """Parts one after the other."""
    traces: list[tuple[int, tr.Trace]] = []
    nodes: list[ProgramNode] = []
    for part in parts:
        traces.extend(part.traces)
        nodes.extend(part.nodes)
    return Part(tuple(traces), tuple(nodes))
