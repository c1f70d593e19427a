"""The merging of copies on one route: fewer exchanges, for values that lie there longer."""

from __future__ import annotations

import dataclasses as dc

from lowering import ir
from lowering.ground import HOST, IpuId
from lowering.jaxprs import size_in_bytes


def merge_copies(program: ir.Program, ipu_bytes: int, host_bytes: int) -> ir.Program:
    """Adds copies to the one before them on the same route, up to a number of bytes.

    Before: a copy stands as late as it may, just before the first step that reads its values.
    After:  values that are there already when a copy on their route goes, go with it. Copies
            between tasks of pipelines stay: they go together after each tick. With the host, only
            the copies of operands and results of its calls are changed.

    Args:
      program: with its copies.
      ipu_bytes: the most bytes of a merged copy between two IPUs; 0 merges none.
      host_bytes: the same between an IPU and the host.
    """
    if not ipu_bytes and not host_bytes:
        return program
    merger = _Merger(program, ipu_bytes, host_bytes)
    return dc.replace(program, body=merger.merge_in_steps(program.body))


class _Merger:
    def __init__(self, program: ir.Program, ipu_bytes: int, host_bytes: int) -> None:
        self._avals = program.avals
        self._ipu_bytes, self._host_bytes = ipu_bytes, host_bytes
        calls = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.HostCall)]
        self._called = {value for call in calls for value in (*call.reads, *call.writes)}

    def merge_in_steps(self, body: ir.Sequence) -> ir.Sequence:
        step_of_value: dict[ir.Place, int] = {}  # by which step
        last_copy_of_route: dict[tuple[IpuId, IpuId], int] = {}  # which step copied on each way
        steps: list[ir.Node] = []
        for node in body.steps:
            if isinstance(node, ir.Copy):
                index = last_copy_of_route.get((node.source, node.target), -1)
                is_there = all(
                    step_of_value.get((value, node.source), -1) < index for value in node.values
                )
                earlier = steps[index] if is_there else None
                if isinstance(earlier, ir.Copy) and self._may_go_together(earlier, node):
                    steps[index] = dc.replace(earlier, values=(*earlier.values, *node.values))
                    continue
                last_copy_of_route[node.source, node.target] = len(steps)
            step_of_value.update(
                (value_on_ipu, len(steps)) for value_on_ipu in ir.places_of_writes(node)
            )
            steps.append(self._merge_in_bodies(node))
        return ir.Sequence(tuple(steps))

    def _may_go_together(self, *copies: ir.Copy) -> bool:
        """Returns whether copies on one route may go together."""
        values = [value for copy in copies for value in copy.values]
        limit = self._ipu_bytes
        if HOST in (copies[0].source, copies[0].target):
            if not self._called.issuperset(values):
                return False
            limit = self._host_bytes
        return sum(size_in_bytes(self._avals[value]) for value in values) <= limit

    def _merge_in_bodies(self, node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Pipeline):
            tasks = ir.Sequence(tuple(self._merge_in_bodies(step) for step in node.body.steps))
            return dc.replace(node, body=tasks)
        return ir.rewrite_bodies(node, lambda body: self.merge_in_steps(body.sequence))
