"""Has copies on one way go together: fewer exchanges, for values that lie there longer."""

from __future__ import annotations

import dataclasses as dc

from lowering import ir
from lowering.avals import size_in_bytes
from lowering.units import HOST, IpuId


def merge_copies(program: ir.Program, ipu_bytes: int, host_bytes: int) -> ir.Program:
    """Adds copies to the one before them between the same two places, up to so many bytes.

    Before: a copy stands as late as it may, just before the first step that reads its values.
    After:  what is there already when a copy on its way goes, goes with it. What passes between
            tasks of pipelines stays: it goes together after each tick. With the host, only
            the copies of what its calls read and make are changed.

    Args:
      program: with its copies.
      ipu_bytes: how many a copy between two IPUs may have in all, another taken in; 0: none is.
      host_bytes: the same between an IPU and the host.
    """
    if not ipu_bytes and not host_bytes:
        return program
    merger = _Merger(program, ipu_bytes, host_bytes)
    return dc.replace(program, body=merger.sequence(program.body))


class _Merger:
    def __init__(self, program: ir.Program, ipu_bytes: int, host_bytes: int) -> None:
        self._avals = program.avals
        self._ipu_bytes, self._host_bytes = ipu_bytes, host_bytes
        calls = [node for node in ir.walk(program.body) if isinstance(node, ir.HostCall)]
        self._called = {value for call in calls for value in (*call.reads, *call.writes)}

    def sequence(self, body: ir.Sequence) -> ir.Sequence:
        made: dict[ir.Place, int] = {}  # by which step
        last: dict[tuple[IpuId, IpuId], int] = {}  # which step copied on each way
        steps: list[ir.Node] = []
        for node in body.steps:
            if isinstance(node, ir.Copy):
                at = last.get((node.source, node.target), -1)
                is_there = all(made.get((value, node.source), -1) < at for value in node.values)
                earlier = steps[at] if is_there else None
                if isinstance(earlier, ir.Copy) and self._fit(earlier, node):
                    steps[at] = dc.replace(earlier, values=(*earlier.values, *node.values))
                    continue
                last[node.source, node.target] = len(steps)
            made.update((place, len(steps)) for place in ir.births(node))
            steps.append(self._inside(node))
        return ir.Sequence(tuple(steps))

    def _fit(self, *copies: ir.Copy) -> bool:
        """Whether copies on one way may go together."""
        values = [value for copy in copies for value in copy.values]
        limit = self._ipu_bytes
        if HOST in (copies[0].source, copies[0].target):
            if not self._called.issuperset(values):
                return False
            limit = self._host_bytes
        return sum(size_in_bytes(self._avals[value]) for value in values) <= limit

    def _inside(self, node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Pipeline):
            tasks = ir.Sequence(tuple(self._inside(step) for step in node.body.steps))
            return dc.replace(node, body=tasks)
        return ir.with_bodies(node, lambda body: self.sequence(body.sequence))
