"""A program looked through once, for all that ask what is in it."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from lowering import dtype_name, ir, jaxpr, schedules, size_in_bytes

_Node = TypeVar("_Node", bound=ir.Node)
_Counts = collections.Counter[str | None]
"""Elements by queue, and micro-batches under None."""


class Index:
    """What is where in a program.

    Attributes:
      program: which one it is.
      nodes: all of them, parents before children, and how often each runs in a call; loops without
        a known count run once.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.nodes = tuple(_nodes(program.body, 1))

    def of(self, *kinds: type[_Node]) -> list[_Node]:
        """The nodes of some kinds."""
        return [node for node, _ in self.nodes if isinstance(node, kinds)]

    @functools.cached_property
    def pipelines(self) -> list[ir.Pipeline]:
        """All of them."""
        return self.of(ir.Pipeline)

    @functools.cached_property
    def first_pipeline(self) -> tuple[schedules.Schedule, int] | None:
        """Its schedule, and how often it runs in a call."""
        for node, times in self.nodes:
            if isinstance(node, ir.Pipeline):
                return node.schedule, times
        return None

    @functools.cached_property
    def elements(self) -> int:
        """How many elements one replica takes in a call from the infeed that gives most.

        Without infeeds, it is the micro-batches of its pipelines. Loops whose trip count only
        values tell count once, and of branches the one that reads most.
        """
        taken = _taken(self.program.body)
        streamed = [count for queue, count in taken.items() if queue is not None]
        return max(streamed, default=taken[None])

    @functools.cached_property
    def equations(self) -> list[jaxpr.JaxprEqn]:
        """All there are; those of a library are at the line of what is around them."""
        todo: list[tuple[jaxpr.Jaxpr, jaxpr.JaxprEqn | None]] = [
            (node.kernel.jaxpr.jaxpr, None) for node in self.of(ir.Execute)
        ]
        equations: list[jaxpr.JaxprEqn] = []
        while todo:
            body, around = todo.pop()
            inside = [jaxpr.called_from(inner, around, body) for inner in body.eqns]
            equations += inside
            todo += [(each, eqn) for eqn in inside for each in jaxpr.sub_jaxprs(eqn)]
        return equations

    def bytes(self, values: Iterable[ir.ValueId]) -> int:
        """What values take together."""
        return sum(size_in_bytes(self.program.avals[value]) for value in values)

    def bytes_by_dtype(self, values: Iterable[int]) -> collections.Counter[str]:
        """What values of each dtype take together."""
        sizes: collections.Counter[str] = collections.Counter()
        for value in values:
            aval = self.program.avals[value]
            sizes[dtype_name(aval)] += size_in_bytes(aval)
        return sizes

    def dtypes(self, values: Iterable[ir.ValueId]) -> set[str]:
        """Of values."""
        return {dtype_name(self.program.avals[value]) for value in values}


def _times(node: ir.Node) -> int:
    if isinstance(node, ir.Pipeline):
        return node.schedule.micro_batches
    count = node.count if isinstance(node, ir.Repeat) else 1
    return 1 if count is None else count


def _nodes(body: ir.Sequence, times: int) -> Iterator[tuple[ir.Node, int]]:
    for node in body.steps:
        yield node, times
        for inner in ir.bodies(node):
            yield from _nodes(inner.sequence, times * _times(node))


def _taken(body: ir.Sequence) -> _Counts:
    taken: _Counts = collections.Counter()
    for node in body.steps:
        if isinstance(node, ir.StreamIn):
            taken[node.queue.name] += node.count or 1
            continue
        inside: _Counts = collections.Counter()
        for counts in (_taken(inner.sequence) for inner in ir.bodies(node)):
            inside = inside | counts if isinstance(node, ir.Switch) else inside + counts
        if isinstance(node, ir.Pipeline):
            inside[None] += 1
        taken.update({key: count * _times(node) for key, count in inside.items()})
    return taken
