"""The Program as a tree: its branches' bodies, its nodes in order, what each reads and leaves."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Iterator

from lowering.ir import program as ir
from lowering.units import HOST, IpuId, ValueId

Place = tuple[ValueId, IpuId]
"""A value on an IPU (or the host)."""


@dc.dataclass(frozen=True, slots=True)
class Body:
    """What a branch runs.

    Attributes:
      sequence: its steps.
      arguments: the names that the branch gives to what enters, and where that is.
      results: what must be there after the last step, for the branch to go on with.
      answer: what a loop's condition says, wherever that is; None for other bodies.
    """

    sequence: ir.Sequence
    arguments: tuple[Place, ...] = ()
    results: tuple[Place, ...] = ()
    answer: ValueId | None = None

    @property
    def leaving(self) -> tuple[ValueId, ...]:
        """The values that are read after the last step."""
        answer = () if self.answer is None else (self.answer,)
        return (*(value for value, _ in self.results), *answer)


def bodies(node: ir.Node) -> tuple[Body, ...]:
    """The bodies directly inside a branch, in the order in which they run; none for a leaf."""
    match node:
        case ir.Repeat() | ir.Pipeline() | ir.While():
            entering = tuple((c.entering, c.ipu) for c in node.carry)
            leaving = tuple((c.leaving, c.ipu) for c in node.carry)
            if isinstance(node, ir.Repeat):
                entering += tuple((s.element, s.ipu) for s in node.slices)
                leaving += tuple((s.element, s.ipu) for s in node.stacks)
            body = Body(node.body, entering, leaving)
            if not isinstance(node, ir.While):
                return (body,)
            return Body(node.condition, entering, answer=node.predicate), body
        case ir.Switch():
            ends = ((b.body, zip(b.results, node.ipus, strict=True)) for b in node.branches)
            return tuple(Body(body, (), tuple(places)) for body, places in ends)
        case ir.Task():
            return (Body(node.body),)
        case ir.Sequence():
            return (Body(node),)
        case _:
            return ()


def with_bodies(node: ir.Node, change: Callable[[Body], ir.Sequence]) -> ir.Node:
    """The branch with other steps in its bodies, which are changed in order; a leaf as it is."""
    new = [change(body) for body in bodies(node)]
    match node:
        case ir.Repeat() | ir.Pipeline() | ir.Task():
            return dc.replace(node, body=new[0])
        case ir.While():
            return dc.replace(node, condition=new[0], body=new[1])
        case ir.Switch():
            pairs = zip(node.branches, new, strict=True)
            return dc.replace(node, branches=tuple(dc.replace(b, body=body) for b, body in pairs))
        case ir.Sequence():
            return new[0]
        case _:
            return node


def with_nodes(sequence: ir.Sequence, change: Callable[[ir.Node], ir.Node]) -> ir.Sequence:
    """The tree with every node changed, at any depth, what is inside a branch before itself."""
    inside = (
        with_bodies(node, lambda body: with_nodes(body.sequence, change)) for node in sequence.steps
    )
    return ir.Sequence(tuple(map(change, inside)))


def opened(steps: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
    """Steps with those of tasks in the place of the tasks, at any depth."""
    flat: list[ir.Node] = []
    for node in steps:
        flat.extend(opened(node.body.steps) if isinstance(node, ir.Task) else (node,))
    return tuple(flat)


def walk(sequence: ir.Sequence) -> Iterator[ir.Node]:
    """Every node of a tree, parents before children, in program order."""
    for node in sequence.steps:
        yield node
        for body in bodies(node):
            yield from walk(body.sequence)


def streams(node: ir.Node) -> bool:
    """Whether the host must drive this node: it feeds a queue or calls the host somewhere."""
    hosted = (ir.StreamIn, ir.StreamOut, ir.HostCall)
    return any(isinstance(inner, hosted) for inner in walk(ir.Sequence((node,))))


def births(node: ir.Node) -> Iterator[Place]:
    """The places at which a node leaves values for the steps after it."""
    match node:
        case ir.Execute() | ir.StreamIn():
            yield from ((value, node.ipu) for value in node.writes)
        case ir.HostCall():
            yield from ((value, HOST) for value in node.writes)
        case ir.Copy() | ir.Receive():
            yield from ((value, node.target) for value in node.values)
        case ir.Repeat() | ir.Pipeline() | ir.While():
            yield from ((c.final, c.ipu) for c in node.carry)
            if isinstance(node, ir.Repeat):
                yield from ((s.stacked, s.ipu) for s in node.stacks)
        case ir.Switch():
            yield from zip(node.writes, node.ipus, strict=True)
        case ir.Load():
            yield (node.value, node.ipu)
        case ir.Store():
            yield (node.kept, node.ipu)
        case ir.Task() | ir.Sequence():
            for body in bodies(node):
                for step in body.sequence.steps:
                    yield from births(step)
        case ir.StreamOut() | ir.Send():
            return


def writes(node: ir.Node) -> tuple[ValueId, ...]:
    """The values that a node makes for the steps after it; what is copied is there already."""
    if isinstance(node, (ir.Task, ir.Sequence)):
        steps = (step for body in bodies(node) for step in body.sequence.steps)
        return tuple(value for step in steps for value in writes(step))
    if isinstance(node, (ir.Copy, ir.Receive)):
        return ()
    return tuple(value for value, _ in births(node))


def steering(node: ir.Node) -> tuple[ValueId, ...]:
    """The scalars that say how often a loop runs, or which branch does."""
    match node:
        case ir.Repeat() if node.trips is not None:
            return (node.trips,)
        case ir.While():
            return (node.predicate,)
        case ir.Switch():
            return (node.index,)
        case _:
            return ()


def _taken(node: ir.Node) -> Iterator[Place]:
    """The places of what a leaf reads, or a branch before its bodies."""
    match node:
        case ir.Execute() | ir.StreamOut():
            yield from ((value, node.ipu) for value in node.reads)
        case ir.HostCall():
            yield from ((value, HOST) for value in node.reads)
        case ir.Copy() | ir.Send():
            yield from ((value, node.source) for value in node.values)
        case ir.Load():
            yield (node.kept, node.ipu)
        case ir.Store():
            yield (node.value, node.ipu)
        case ir.Repeat() | ir.Pipeline() | ir.While():
            yield from ((c.initial, c.ipu) for c in node.carry)
            if isinstance(node, ir.Repeat):
                yield from ((s.stacked, s.ipu) for s in node.slices)
        case _:
            return


def needs(node: ir.Node, inner: Callable[[ir.Node], frozenset[Place]]) -> Iterator[Place]:
    """The places that a node reads, those inside its own bodies among them.

    Args:
      node: any node.
      inner: the same for the steps of its bodies; a caller may remember what it gave.
    """
    yield from _taken(node)
    for body in bodies(node):
        for step in body.sequence.steps:
            yield from inner(step)
        yield from body.results


def reads(node: ir.Node) -> tuple[ValueId, ...]:
    """The values from around it that a node reads, each once, in order of first use."""
    return tuple(dict.fromkeys(_reads(node)))


def _reads(node: ir.Node) -> Iterator[ValueId]:
    if not isinstance(node, ir.While):  # its predicate is made inside
        yield from steering(node)
    yield from (value for value, _ in _taken(node))
    for body in bodies(node):
        known = {value for value, _ in body.arguments}
        for step in body.sequence.steps:
            yield from (value for value in _reads(step) if value not in known)
            known.update(writes(step))
        yield from (value for value in body.leaving if value not in known)
