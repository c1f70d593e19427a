"""The Program as a tree: the bodies of its nodes, its nodes in order, their reads and writes."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Iterator

from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import program as ir

Place = tuple[ValueId, IpuId]
"""A value on an IPU (or the host)."""


@dc.dataclass(frozen=True, slots=True)
class Body:
    """The steps that a branch runs, with the values that enter and leave them.

    Attributes:
      sequence: the steps.
      arguments: the values that the branch names on entry, with their IPUs.
      results: the values that the branch reads after the last step, on the IPUs where it does.
      answer: the predicate of a loop's condition, on whichever IPU; None for other bodies.
    """

    sequence: ir.Sequence
    arguments: tuple[Place, ...] = ()
    results: tuple[Place, ...] = ()
    answer: ValueId | None = None

    @property
    def values_read_after(self) -> tuple[ValueId, ...]:
        """The values that are read after the last step."""
        answer = () if self.answer is None else (self.answer,)
        return (*(value for value, _ in self.results), *answer)


def bodies_of_node(node: ir.Node) -> tuple[Body, ...]:
    """Returns the bodies directly inside a branch, in the order they run; () for a leaf."""
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
            body_and_results = (
                (b.body, zip(b.results, node.ipus, strict=True)) for b in node.branches
            )
            return tuple(Body(body, (), tuple(results)) for body, results in body_and_results)
        case ir.Task():
            return (Body(node.body),)
        case ir.Sequence():
            return (Body(node),)
        case _:
            return ()


def rewrite_bodies(node: ir.Node, change: Callable[[Body], ir.Sequence]) -> ir.Node:
    """Returns a branch with its bodies changed, in order; a leaf stays as it is."""
    new_bodies = [change(body) for body in bodies_of_node(node)]
    match node:
        case ir.Repeat() | ir.Pipeline() | ir.Task():
            return dc.replace(node, body=new_bodies[0])
        case ir.While():
            return dc.replace(node, condition=new_bodies[0], body=new_bodies[1])
        case ir.Switch():
            pairs = zip(node.branches, new_bodies, strict=True)
            return dc.replace(node, branches=tuple(dc.replace(b, body=body) for b, body in pairs))
        case ir.Sequence():
            return new_bodies[0]
        case _:
            return node


def rewrite_nodes(sequence: ir.Sequence, change: Callable[[ir.Node], ir.Node]) -> ir.Sequence:
    """Returns a tree with every node changed, at any depth, bodies before their branch."""
    rewritten_steps = (
        rewrite_bodies(node, lambda body: rewrite_nodes(body.sequence, change))
        for node in sequence.steps
    )
    return ir.Sequence(tuple(map(change, rewritten_steps)))


def inline_tasks(steps: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
    """Returns the steps with each task replaced by its own steps, at any depth."""
    flat: list[ir.Node] = []
    for node in steps:
        flat.extend(inline_tasks(node.body.steps) if isinstance(node, ir.Task) else (node,))
    return tuple(flat)


def walk_nodes(sequence: ir.Sequence) -> Iterator[ir.Node]:
    """Yields every node of a tree, parents before children, in program order."""
    for node in sequence.steps:
        yield node
        for body in bodies_of_node(node):
            yield from walk_nodes(body.sequence)


def needs_host(node: ir.Node) -> bool:
    """Returns whether the host must drive a node: it uses a queue or calls the host."""
    host_nodes = (ir.StreamIn, ir.StreamOut, ir.HostCall)
    return any(
        isinstance(nested_node, host_nodes) for nested_node in walk_nodes(ir.Sequence((node,)))
    )


def places_of_writes(node: ir.Node) -> Iterator[Place]:
    """Yields the values that a node leaves for later steps, each with its IPU."""
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
            for body in bodies_of_node(node):
                for step in body.sequence.steps:
                    yield from places_of_writes(step)
        case ir.StreamOut() | ir.Send():
            return


def values_written(node: ir.Node) -> tuple[ValueId, ...]:
    """Returns the values that a node makes for the steps after it; copies make none."""
    if isinstance(node, (ir.Task, ir.Sequence)):
        steps = (step for body in bodies_of_node(node) for step in body.sequence.steps)
        return tuple(value for step in steps for value in values_written(step))
    if isinstance(node, (ir.Copy, ir.Receive)):
        return ()
    return tuple(value for value, _ in places_of_writes(node))


def scalars_deciding_control_flow(node: ir.Node) -> tuple[ValueId, ...]:
    """Returns the scalars that decide how often a loop runs, or which branch does."""
    match node:
        case ir.Repeat() if node.trips is not None:
            return (node.trips,)
        case ir.While():
            return (node.predicate,)
        case ir.Switch():
            return (node.index,)
        case _:
            return ()


def _places_of_own_reads(node: ir.Node) -> Iterator[Place]:
    """Yields the values, with their IPUs, that a leaf reads, or a branch before its bodies."""
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


def places_of_reads(
    node: ir.Node, places_of_step: Callable[[ir.Node], frozenset[Place]]
) -> Iterator[Place]:
    """Yields the values, with their IPUs, that a node and its bodies read.

    Args:
      node: any node.
      places_of_step: returns the same for a step of its bodies; a caller may cache it.
    """
    yield from _places_of_own_reads(node)
    for body in bodies_of_node(node):
        for step in body.sequence.steps:
            yield from places_of_step(step)
        yield from body.results


def values_read(node: ir.Node) -> tuple[ValueId, ...]:
    """Returns the values from outside that a node reads, each once, in order of first use."""
    return tuple(dict.fromkeys(_iterate_values_read(node)))


def _iterate_values_read(node: ir.Node) -> Iterator[ValueId]:
    if not isinstance(node, ir.While):  # its predicate is made inside
        yield from scalars_deciding_control_flow(node)
    yield from (value for value, _ in _places_of_own_reads(node))
    for body in bodies_of_node(node):
        values_inside = {value for value, _ in body.arguments}
        for step in body.sequence.steps:
            yield from (value for value in _iterate_values_read(step) if value not in values_inside)
            values_inside.update(values_written(step))
        yield from (value for value in body.values_read_after if value not in values_inside)
