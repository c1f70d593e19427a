"""Where values are written, who reads them, and when they are dead."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterable, Mapping
from typing import Any

from lowering.ir import program as ir
from lowering.ir.tree import Place, births, bodies, needs, reads, steering, walk
from lowering.units import HOST, IpuId, ValueId


class Needs:
    """The places that a node reads, those inside its bodies among them; remembered by node.

    Args:
      homes: where values are written. If given, the scalars that steer a branch count as read
        there: the host looks at them wherever they are.
    """

    def __init__(self, homes: Mapping[ValueId, IpuId] | None = None) -> None:
        self._homes = homes
        self._known: dict[int, frozenset[Place]] = {}

    def __call__(self, node: ir.Node) -> frozenset[Place]:
        """The places of one node."""
        if id(node) not in self._known:
            scalars = steering(node) if self._homes is not None else ()
            read = ((value, (self._homes or {})[value]) for value in scalars)
            self._known[id(node)] = frozenset((*needs(node, self), *read))
        return self._known[id(node)]


def homes(program: ir.Program) -> dict[ValueId, IpuId]:
    """The IPU on which each value is written."""
    written: dict[ValueId, IpuId] = dict.fromkeys(program.inputs, HOST)
    written.update((value, HOST) for value, _ in program.constants)
    for node in walk(program.body):
        if not isinstance(node, (ir.Copy, ir.Receive)):
            written.update(births(node))
        written.update(place for body in bodies(node) for place in body.arguments)
    return written


def dead_after(
    body: ir.Sequence, results: Iterable[Place], needs_of: Needs, entering: Iterable[Place] = ()
) -> list[list[Place]]:
    """For each step of a body, the places born in it (or entering it) that nothing later reads."""
    born = {place for node in body.steps for place in births(node)} | set(entering)
    live = set(results)
    dead: list[list[Place]] = []
    for node in reversed(body.steps):
        touched = set(needs_of(node)) | set(births(node))
        dead.append([place for place in touched if place in born and place not in live])
        live |= touched
    return dead[::-1]


def carried_once(program: ir.Program) -> set[ValueId]:
    """The values that only one loop reads, once: as a loop variable, at the top level."""
    carried: collections.Counter[ValueId] = collections.Counter()
    others = set(program.outputs)
    for node in program.body.steps:
        if isinstance(node, (ir.Repeat, ir.Pipeline)):
            carried.update(c.initial for c in node.carry)
            others.update(reads(dc.replace(node, carry=())))
        elif not isinstance(node, ir.Copy):
            others.update(reads(node))
    return {value for value, count in carried.items() if count == 1 and value not in others}


def queues(program: ir.Program, kind: type[ir.StreamIn] | type[ir.StreamOut]) -> list[Any]:
    """The queues that a program reads (`StreamIn`) or feeds (`StreamOut`), each once."""
    nodes = (node for node in walk(program.body) if isinstance(node, kind))
    return list(dict.fromkeys(node.queue for node in nodes))
