"""The result of timing a part of a program: steps in time, nodes in the program tree."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

from lowering.machine import trace as tr
from lowering.machine.program_tree import NodeKind, ProgramNode


@dc.dataclass(frozen=True, slots=True, eq=False)
class TimedPart:
    """A part of a program that has been timed.

    Attributes:
      traces: steps, each with the cycle at which it starts in the part around it.
      nodes: nodes of the program tree, one after the other.
    """

    traces: tuple[tuple[int, tr.Trace], ...] = ()
    nodes: tuple[ProgramNode, ...] = ()

    def wrap_in_node(
        self, kind: NodeKind, name: str, origin: str, cycles: int, ipu: int | None = None
    ) -> TimedPart:
        """Returns the same steps, with all nodes under one new node."""
        node = ProgramNode(
            kind=kind, name=name, origin=origin, cycles=cycles, ipu=ipu, children=self.nodes
        )
        return TimedPart(self.traces, (node,))

    def start_at(self, cycle: int) -> TimedPart:
        """Returns the same part, so many cycles later."""
        return TimedPart(tuple((cycle + start, trace) for start, trace in self.traces), self.nodes)

    def set_node_counts(self, count: int) -> TimedPart:
        """Returns the same steps, with nodes that each run so often."""
        return TimedPart(self.traces, tuple(dc.replace(node, count=count) for node in self.nodes))


def join_parts(parts: Iterable[TimedPart]) -> TimedPart:
    """Joins parts that run one after the other."""
    traces: list[tuple[int, tr.Trace]] = []
    nodes: list[ProgramNode] = []
    for part in parts:
        traces.extend(part.traces)
        nodes.extend(part.nodes)
    return TimedPart(tuple(traces), tuple(nodes))
