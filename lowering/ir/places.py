"""Where a node finds its values and where it leaves them: pairs of value and IPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lowering.ir.program import (
    Copy,
    Execute,
    HostCall,
    Load,
    Node,
    Repeat,
    Sequence,
    Store,
    StreamIn,
    StreamOut,
    Switch,
    Task,
    While,
)
from lowering.units import HOST, IpuId, ValueId

Place = tuple[ValueId, IpuId]
"""A value on an IPU (or the host)."""


def births(node: Node) -> Iterator[Place]:
    """The places at which a node leaves values for the steps after it."""
    match node:
        case Execute() | StreamIn():
            yield from ((value, node.ipu) for value in node.writes)
        case HostCall():
            yield from ((value, HOST) for value in node.writes)
        case Copy():
            yield from ((value, node.target) for value in node.values)
        case Repeat():
            yield from ((c.final, c.ipu) for c in node.carry)
            yield from ((s.stacked, s.ipu) for s in node.stacks)
        case While():
            yield from ((c.final, c.ipu) for c in node.carry)
        case Switch():
            yield from zip(node.writes, node.ipus, strict=True)
        case Load():
            yield (node.value, node.ipu)
        case Store():
            yield (node.kept, node.ipu)
        case Task():
            for step in node.body.steps:
                yield from births(step)
        case StreamOut() | Sequence():
            return


def needs(node: Node, inner: Callable[[Node], frozenset[Place]]) -> Iterator[Place]:
    """The places that a node reads, those inside its own bodies among them.

    Args:
      node: any node.
      inner: the same for the steps of its bodies; a caller may remember what it gave.
    """
    match node:
        case Execute() | StreamOut():
            yield from ((value, node.ipu) for value in node.reads)
        case HostCall():
            yield from ((value, HOST) for value in node.reads)
        case Copy():
            yield from ((value, node.source) for value in node.values)
        case Repeat():
            yield from ((c.initial, c.ipu) for c in node.carry)
            yield from ((s.stacked, s.ipu) for s in node.slices)
            yield from _all(node.body, inner)
            yield from ((c.leaving, c.ipu) for c in node.carry)
            yield from ((s.element, s.ipu) for s in node.stacks)
        case While():
            yield from ((c.initial, c.ipu) for c in node.carry)
            yield from _all(node.condition, inner)
            yield from _all(node.body, inner)
            yield from ((c.leaving, c.ipu) for c in node.carry)
        case Switch():
            for branch in node.branches:
                yield from _all(branch.body, inner)
                yield from zip(branch.results, node.ipus, strict=True)
        case Load():
            yield (node.kept, node.ipu)
        case Store():
            yield (node.value, node.ipu)
        case Task():
            yield from _all(node.body, inner)
        case Sequence():
            yield from _all(node, inner)
        case StreamIn():
            return


def _all(body: Sequence, inner: Callable[[Node], frozenset[Place]]) -> Iterator[Place]:
    for step in body.steps:
        yield from inner(step)


def arguments(node: Node) -> Iterator[Place]:
    """The places of the names that a branch gives to what enters its bodies."""
    match node:
        case Repeat():
            yield from ((c.entering, c.ipu) for c in node.carry)
            yield from ((s.element, s.ipu) for s in node.slices)
        case While():
            yield from ((c.entering, c.ipu) for c in node.carry)
        case _:
            return
