"""Finds how many bytes an IPU holds at each step of a call."""

from __future__ import annotations

import bisect
import collections
import dataclasses as dc
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lowering import trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

_Key: TypeAlias = tuple[str, str]
"""The name of an operation, and its line."""


def rename_steps_by_liveness(report: Report) -> trace.Trace:
    """Returns a report's trace with steps renamed to their numbers in the IPU's liveness.

    A name is the number of a step of the `Liveness` of its IPU, or "" where there is none. Both
    come from the same program, in which bodies of loops and tasks are there once; steps are those
    of the same operation and line, in the same order.
    """
    return _LivenessNumbering(report).number_steps(report.steps.trace, None)


class _LivenessNumbering:
    def __init__(self, report: Report) -> None:
        operations = report.operations
        self._operations = {(o.ipu, o.number): (o.name, o.origin) for o in operations}
        self._walks = [
            _LivenessWalk(list(zip(h.names, h.origins, strict=True))) for h in report.liveness
        ]
        self._known: dict[tuple[int, int | None], trace.Trace] = {}

    def number_steps(self, node: trace.Trace, ipu: int | None) -> trace.Trace:
        """Returns a part of the trace with numbered steps, on one IPU if that is known."""
        key = id(node), ipu
        if key not in self._known:
            self._known[key] = self._number_children(node, ipu)
        return self._known[key]

    def _number_children(self, node: trace.Trace, ipu: int | None) -> trace.Trace:
        match node:
            case trace.Block():
                return self._number_block(node, ipu)
            case trace.On():
                return dc.replace(
                    node, body=self.number_steps(node.body, node.ipu if ipu is None else ipu)
                )
            case trace.Loop():
                return dc.replace(node, body=self.number_steps(node.body, ipu))
            case trace.Group():
                return dc.replace(
                    node, children=tuple(self.number_steps(c, ipu) for c in node.children)
                )
            case trace.Tasks():
                return dc.replace(
                    node, bodies=tuple(self.number_steps(body, ipu) for body in node.bodies)
                )

    def _number_block(self, block: trace.Block, enclosing_ipu: int | None) -> trace.Block:
        codes: dict[str, int] = {}
        names: list[int] = []
        rows = zip(block.ipu.tolist(), block.kind.tolist(), block.name.tolist(), strict=True)
        for block_ipu, kind, name in rows:
            ipu = block_ipu if enclosing_ipu is None else enclosing_ipu
            operation = self._operations.get((ipu, block.operations[name]))
            first_step = (block.names[name], kind)
            number = (
                ""
                if operation is None
                else self._walks[ipu].advance_to_operation(operation, first_step)
            )
            names.append(codes.setdefault(number, len(codes)))
        no_origins = ("",) * len(codes)
        return dc.replace(
            block,
            name=np.array(names, dtype=np.int32),
            names=tuple(codes),
            origins=no_origins,
            operations=(trace.NONE,) * len(codes),
        )


class _LivenessWalk:
    """A walk through the liveness of one IPU, along with its steps.

    Args:
      keys: the operation of each step of its liveness.
    """

    def __init__(self, keys: list[_Key]) -> None:
        self._keys = keys
        self._places: dict[_Key, list[int]] = collections.defaultdict(list)
        for index, key in enumerate(keys):
            self._places[key].append(index)
        self._now = -1
        self._begun: tuple[str, int] = ("", -1)

    def advance_to_operation(self, key: _Key, first_step: tuple[str, int]) -> str:
        """Returns the liveness number of a step of an operation, which may be its first step."""
        keys, index = self._keys, self._now
        if key not in self._places:
            return ""
        is_same_operation = index >= 0 and keys[index] == key
        starts_again = (
            first_step == self._begun and index + 1 < len(keys) and keys[index + 1] == key
        )
        if not is_same_operation or starts_again:
            indices = self._places[key]
            next_position = bisect.bisect_right(indices, index)
            self._now = indices[next_position] if next_position < len(indices) else indices[0]
            self._begun = first_step
        return str(self._now)
