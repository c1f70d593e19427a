"""How many bytes an IPU holds at each step of a call."""

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
"""What an operation is called, and its line."""


def live_trace(report: Report) -> trace.Trace:
    """The trace of a report, whose steps are called as what is alive then is numbered.

    That is the number of a step of the `Liveness` of its IPU, or nothing where there is none. Both
    come from the same program, in which bodies of loops and tasks are there once; steps are those
    of the same operation and line, in the same order.
    """
    return _Numbering(report).of(report.steps.trace, None)


class _Numbering:
    def __init__(self, report: Report) -> None:
        found = report.operations
        self._operations = {(o.ipu, o.number): (o.name, o.origin) for o in found}
        self._walks = [_Walk(list(zip(h.names, h.origins, strict=True))) for h in report.liveness]
        self._known: dict[tuple[int, int | None], trace.Trace] = {}

    def of(self, node: trace.Trace, on: int | None) -> trace.Trace:
        """A part of the trace, on an IPU if that is told."""
        key = id(node), on
        if key not in self._known:
            self._known[key] = self._numbered(node, on)
        return self._known[key]

    def _numbered(self, node: trace.Trace, on: int | None) -> trace.Trace:
        match node:
            case trace.Block():
                return self._block(node, on)
            case trace.On():
                return dc.replace(node, body=self.of(node.body, node.ipu if on is None else on))
            case trace.Loop():
                return dc.replace(node, body=self.of(node.body, on))
            case trace.Group():
                return dc.replace(node, children=tuple(self.of(c, on) for c in node.children))
            case trace.Tasks():
                return dc.replace(node, bodies=tuple(self.of(body, on) for body in node.bodies))

    def _block(self, block: trace.Block, on: int | None) -> trace.Block:
        codes: dict[str, int] = {}
        names: list[int] = []
        rows = zip(block.ipu.tolist(), block.kind.tolist(), block.name.tolist(), strict=True)
        for own, kind, name in rows:
            ipu = own if on is None else on
            operation = self._operations.get((ipu, block.operations[name]))
            begins = (block.names[name], kind)
            number = "" if operation is None else self._walks[ipu].at(operation, begins)
            names.append(codes.setdefault(number, len(codes)))
        none = ("",) * len(codes)
        return dc.replace(
            block,
            name=np.array(names, dtype=np.int32),
            names=tuple(codes),
            origins=none,
            operations=(trace.NONE,) * len(codes),
        )


class _Walk:
    """Goes along what is alive on one IPU, as its steps go on.

    Args:
      keys: the operation of each step of its liveness.
    """

    def __init__(self, keys: list[_Key]) -> None:
        self._keys = keys
        self._places: dict[_Key, list[int]] = collections.defaultdict(list)
        for place, key in enumerate(keys):
            self._places[key].append(place)
        self._now = -1
        self._begun: tuple[str, int] = ("", -1)

    def at(self, key: _Key, begins: tuple[str, int]) -> str:
        """The number of the step of an operation's, of which this may be the first one."""
        keys, now = self._keys, self._now
        if key not in self._places:
            return ""
        same = now >= 0 and keys[now] == key
        again = begins == self._begun and now + 1 < len(keys) and keys[now + 1] == key
        if not same or again:
            places = self._places[key]
            after = bisect.bisect_right(places, now)
            self._now = places[after] if after < len(places) else places[0]
            self._begun = begins
        return str(self._now)
