"""Adds the copies that bring each value to the IPUs that read it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Iterator

from lowering.ir import program as ir
from lowering.ir.liveness import Needs
from lowering.ir.places import Place, births
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
        self._present: set[Place] = set()
        self._added: list[Place] = []  # in order, so that leaving a body can forget its places
        self.needs = Needs()

    def born(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        for value in values:
            self.home[value] = ipu
            self.put((value, ipu))

    def put(self, place: Place) -> None:
        if place not in self._present:
            self._present.add(place)
            self._added.append(place)

    def forget_since(self, mark: int) -> None:
        while len(self._added) > mark:
            self._present.discard(self._added.pop())

    def sequence(self, body: ir.Sequence, at_end: Iterable[Place] = ()) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            mark = len(self._added)
            steps.extend(self.copies(self.needs(node)))
            steps.append(self.rebuilt(node))
            if isinstance(node, ir.Task) and node.spec.kind is Kind.WEIGHTS:
                self.forget_since(mark)  # a schedule may run it after tasks that stand behind it
            for value, ipu in births(node):
                self.born((value,), ipu)
        steps.extend(self.copies(at_end))
        return ir.Sequence(tuple(steps))

    def copies(self, places: Iterable[Place]) -> Iterator[ir.Copy]:
        """The copies that make the places true, one per route."""
        routes: dict[tuple[IpuId, IpuId], list[ValueId]] = {}
        for value, ipu in sorted(places):
            if value in self.home and (value, ipu) not in self._present:
                self.put((value, ipu))
                routes.setdefault((self.home[value], ipu), []).append(value)
        for source, target in sorted(routes):
            yield ir.Copy(tuple(routes[source, target]), source, target)

    def rebuilt(self, node: ir.Node) -> ir.Node:
        """The node with copies inside its bodies."""
        match node:
            case ir.Repeat():
                arguments = [(c.entering, c.ipu) for c in node.carry]
                arguments += [(s.element, s.ipu) for s in node.slices]
                results = [(c.leaving, c.ipu) for c in node.carry]
                results += [(s.element, s.ipu) for s in node.stacks]
                return dc.replace(node, body=self.inside(node.body, arguments, results))
            case ir.While():
                arguments = [(c.entering, c.ipu) for c in node.carry]
                results = [(c.leaving, c.ipu) for c in node.carry]
                return dc.replace(
                    node,
                    condition=self.inside(node.condition, arguments, ()),
                    body=self.inside(node.body, arguments, results),
                )
            case ir.Switch():
                branches = tuple(self.branch(b, node.ipus) for b in node.branches)
                return dc.replace(node, branches=branches)
            case ir.Task():
                return dc.replace(node, body=self.sequence(node.body))
            case _:
                return node

    def branch(self, branch: ir.Branch, ipus: tuple[IpuId, ...]) -> ir.Branch:
        """A branch whose results are where the switch leaves them."""
        results = zip(branch.results, ipus, strict=True)
        return dc.replace(branch, body=self.inside(branch.body, (), results))

    def inside(
        self, body: ir.Sequence, arguments: Iterable[Place], results: Iterable[Place]
    ) -> ir.Sequence:
        """A body whose arguments are born at the given places and whose results must be there."""
        mark = len(self._added)
        for value, ipu in arguments:
            self.born((value,), ipu)
        sequence = self.sequence(body, results)
        self.forget_since(mark)
        return sequence
