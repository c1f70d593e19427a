"""Leaves out what puts values away and brings them back: on one device they are where they are."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable
from typing import TypeVar

from lowering import ir
from lowering.units import ValueId

_Loop = TypeVar("_Loop", ir.Repeat, ir.While)


def drop_storage(program: ir.Program) -> ir.Program:
    """Gives what is stored the name of its value, so that no kernel has to copy it.

    Before: everything is on one IPU; stores and loads may be anywhere.
    After:  there are none; what they made is read under the name of what they were given.
    """
    dropper = _Dropper()
    body = dropper.sequence(program.body)
    return dc.replace(program, body=body, outputs=dropper.rename_all(program.outputs))


class _Dropper:
    def __init__(self) -> None:
        self.names: dict[ValueId, ValueId] = {}

    def rename(self, value: ValueId) -> ValueId:
        return self.names.get(value, value)

    def rename_all(self, values: Iterable[ValueId]) -> tuple[ValueId, ...]:
        return tuple(map(self.rename, values))

    def sequence(self, body: ir.Sequence) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            match node:
                case ir.Store():
                    self.names[node.kept] = self.rename(node.value)
                case ir.Load():
                    self.names[node.value] = self.rename(node.kept)
                case ir.Execute() | ir.StreamOut() | ir.HostCall():
                    steps.append(dc.replace(node, reads=self.rename_all(node.reads)))
                case ir.Repeat():
                    steps.append(self.repeat(node))
                case ir.While():
                    steps.append(self.loop(node))
                case ir.Switch():
                    steps.append(self.switch(node))
                case _:
                    steps.append(node)
        return ir.Sequence(tuple(steps))

    def repeat(self, node: ir.Repeat) -> ir.Node:
        slices = tuple(dc.replace(s, stacked=self.rename(s.stacked)) for s in node.slices)
        trips = None if node.trips is None else self.rename(node.trips)
        looped = self.loop(dc.replace(node, slices=slices, trips=trips))
        stacks = tuple(dc.replace(s, element=self.rename(s.element)) for s in node.stacks)
        return dc.replace(looped, stacks=stacks)

    def loop(self, node: _Loop) -> _Loop:
        initial = self.rename_all(c.initial for c in node.carry)
        if isinstance(node, ir.While):
            condition = self.sequence(node.condition)
            node = dc.replace(node, condition=condition, predicate=self.rename(node.predicate))
        body = self.sequence(node.body)
        leaving = self.rename_all(c.leaving for c in node.carry)
        names = zip(node.carry, initial, leaving, strict=True)
        carry = tuple(dc.replace(c, initial=first, leaving=last) for c, first, last in names)
        return dc.replace(node, carry=carry, body=body)

    def switch(self, node: ir.Switch) -> ir.Node:
        branches = tuple(
            ir.Branch(self.sequence(branch.body), self.rename_all(branch.results))
            for branch in node.branches
        )
        return dc.replace(node, index=self.rename(node.index), branches=branches)
