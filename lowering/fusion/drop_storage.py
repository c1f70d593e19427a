"""Removes stores and loads, which do nothing on a single device."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable
from typing import TypeVar

from lowering import ir
from lowering.ground import ValueId

_Loop = TypeVar("_Loop", ir.Repeat, ir.While)


def drop_storage(program: ir.Program) -> ir.Program:
    """Replaces stored and loaded values by the original ones, so that no kernel copies them.

    Before: everything is on one IPU; stores and loads may be anywhere.
    After:  there are none; readers of their results read the values that were stored.
    """
    dropper = _Dropper()
    body = dropper.drop_storage_in_steps(program.body)
    return dc.replace(program, body=body, outputs=dropper.names_before_storage(program.outputs))


class _Dropper:
    def __init__(self) -> None:
        self.names: dict[ValueId, ValueId] = {}

    def name_before_storage(self, value: ValueId) -> ValueId:
        return self.names.get(value, value)

    def names_before_storage(self, values: Iterable[ValueId]) -> tuple[ValueId, ...]:
        return tuple(map(self.name_before_storage, values))

    def drop_storage_in_steps(self, body: ir.Sequence) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            match node:
                case ir.Store():
                    self.names[node.kept] = self.name_before_storage(node.value)
                case ir.Load():
                    self.names[node.value] = self.name_before_storage(node.kept)
                case ir.Execute() | ir.StreamOut() | ir.HostCall():
                    steps.append(dc.replace(node, reads=self.names_before_storage(node.reads)))
                case ir.Repeat():
                    steps.append(self.drop_storage_in_repeat(node))
                case ir.While():
                    steps.append(self.drop_storage_in_loop(node))
                case ir.Switch():
                    steps.append(self.drop_storage_in_switch(node))
                case _:
                    steps.append(node)
        return ir.Sequence(tuple(steps))

    def drop_storage_in_repeat(self, node: ir.Repeat) -> ir.Node:
        slices = tuple(
            dc.replace(s, stacked=self.name_before_storage(s.stacked)) for s in node.slices
        )
        trips = None if node.trips is None else self.name_before_storage(node.trips)
        loop = self.drop_storage_in_loop(dc.replace(node, slices=slices, trips=trips))
        stacks = tuple(
            dc.replace(s, element=self.name_before_storage(s.element)) for s in node.stacks
        )
        return dc.replace(loop, stacks=stacks)

    def drop_storage_in_loop(self, node: _Loop) -> _Loop:
        initial = self.names_before_storage(c.initial for c in node.carry)
        if isinstance(node, ir.While):
            condition = self.drop_storage_in_steps(node.condition)
            node = dc.replace(
                node, condition=condition, predicate=self.name_before_storage(node.predicate)
            )
        body = self.drop_storage_in_steps(node.body)
        leaving = self.names_before_storage(c.leaving for c in node.carry)
        names = zip(node.carry, initial, leaving, strict=True)
        carry = tuple(dc.replace(c, initial=first, leaving=last) for c, first, last in names)
        return dc.replace(node, carry=carry, body=body)

    def drop_storage_in_switch(self, node: ir.Switch) -> ir.Node:
        branches = tuple(
            ir.Branch(
                self.drop_storage_in_steps(branch.body), self.names_before_storage(branch.results)
            )
            for branch in node.branches
        )
        return dc.replace(node, index=self.name_before_storage(node.index), branches=branches)
