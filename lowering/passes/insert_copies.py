"""Adds the copies that bring each value to the IPUs that read it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Iterator

from lowering import ir
from lowering.ops.tasks import Kind
from lowering.units import HOST, IpuId, ValueId


def insert_copies(program: ir.Program) -> ir.Program:
    """Makes every value present where it is read.

    Before: values live only where they are written; arguments and constants on the host.
    After:  every read finds its value on its own IPU; what a loop only reads is copied once,
            before the loop; results are on the host.
    """
    places = _Places()
    places.born((*program.inputs, *(value for value, _ in program.constants)), HOST)
    body = places.sequence(program.body, ((value, HOST) for value in program.outputs))
    return dc.replace(program, body=body)


class _Places:
    """Where each value is, while one walks along the program."""

    def __init__(self) -> None:
        self.home: dict[ValueId, IpuId] = {}
        self.present: set[ir.Place] = set()
        self.needs = ir.Needs()

    def born(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        for value in values:
            self.home[value] = ipu
            self.present.add((value, ipu))

    def sequence(self, body: ir.Sequence, at_end: Iterable[ir.Place] = ()) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            # A schedule may run these after tasks that stand behind them.
            is_late = isinstance(node, ir.Task) and node.spec.kind is Kind.WEIGHTS
            before = set(self.present) if is_late else None
            steps.extend(self.copies(self.needs(node)))
            steps.append(self.rebuilt(node))
            if before is not None:
                self.present = before
            for value, ipu in ir.births(node):
                self.born((value,), ipu)
        steps.extend(self.copies(at_end))
        return ir.Sequence(tuple(steps))

    def copies(self, places: Iterable[ir.Place]) -> Iterator[ir.Copy]:
        """The copies that make the places true, one per route."""
        routes: dict[tuple[IpuId, IpuId], list[ValueId]] = {}
        for value, ipu in sorted(places):
            if value in self.home and (value, ipu) not in self.present:
                self.present.add((value, ipu))
                routes.setdefault((self.home[value], ipu), []).append(value)
        for source, target in sorted(routes):
            yield ir.Copy(tuple(routes[source, target]), source, target)

    def rebuilt(self, node: ir.Node) -> ir.Node:
        """The node with copies inside its bodies."""
        if isinstance(node, ir.Task):  # what it brings is seen by all that follows
            return ir.with_bodies(node, lambda body: self.sequence(body.sequence))
        return ir.with_bodies(node, self.inside)

    def inside(self, body: ir.Body) -> ir.Sequence:
        """A body whose arguments are born at their places and whose results must be there."""
        outside = set(self.present)
        for value, ipu in body.arguments:
            self.born((value,), ipu)
        sequence = self.sequence(body.sequence, body.results)
        self.present = outside
        return sequence
