"""Keeps values that wait between weight updates stored in every loop that carries them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence

from lowering import ir
from lowering.jaxpr import Aval
from lowering.ops.storage import Storage
from lowering.passes.stored_slots import Kept, Slot, find_slots, whole_reads
from lowering.units import ValueId


def keep_stored(program: ir.Program) -> ir.Program:
    """Stores loop variables before their loop starts, and loads them only where they are read.

    Before: a weight update loads its state and stores it again. The loops around it carry that
            state as they carry anything else: they start with a value that was never stored.
    After:  such a loop variable is stored when its loop starts, it stays stored from iteration to
            iteration, also through branches and loops inside of loops, and it is loaded where
            something else than a weight update reads it. A loop that only stores what it carries,
            and brings it back, carries it stored.
    """
    if not any(isinstance(node, ir.Load | ir.Store) for node in ir.walk(program.body)):
        return program
    return _Keeper(program, find_slots(program)).run()


class _Keeper:
    """One rewriting of a program.

    Attributes:
      kept: where and how values are stored, by every name that they have then.
      same: names of stored values that turned out to be others' names.
      first: what the program begins with.
      loaded_from: what was loaded, by the value that the load gave.
    """

    def __init__(self, program: ir.Program, slots: Sequence[tuple[Slot, Storage]]) -> None:
        self.program = program
        self.avals: list[Aval] = list(program.avals)
        self.kept: dict[ValueId, Kept] = {
            name: Kept(slot.ipu, storage) for slot, storage in slots for name in slot.names
        }
        self.storage_of = {(slot.owner, slot.place): storage for slot, storage in slots}
        self.same: dict[ValueId, ValueId] = {}
        self.loaded_from: dict[ValueId, ValueId] = {}
        self.first: list[ir.Node] = []
        read = {value for node in ir.walk(program.body) for value in whole_reads(node)}
        self.arguments = set(program.inputs) - read

    def run(self) -> ir.Program:
        """The program, rewritten."""
        steps, loaded = self.steps(self.program.body.steps)
        outputs = [self.load_value(value, steps, loaded) for value in self.program.outputs]
        body = _without_idle_moves(ir.Sequence((*self.first, *steps)), outputs)
        return dc.replace(self.program, avals=tuple(self.avals), body=body, outputs=tuple(outputs))

    def steps(self, nodes: Iterable[ir.Node]) -> tuple[list[ir.Node], dict[ValueId, ValueId]]:
        """The steps of a body, and what was loaded in it for whom it had to be."""
        steps: list[ir.Node] = []
        loaded: dict[ValueId, ValueId] = {}
        for node in nodes:
            match node:
                case ir.Store():
                    self.store(node, steps, loaded)
                case ir.Load():
                    self.load(node, steps)
                case ir.Repeat() | ir.While() | ir.Pipeline():
                    steps.append(self.loop(node, steps, loaded))
                case ir.Switch():
                    steps.append(self.switch(node))
                case ir.Task():
                    body, _ = self.steps(node.body.steps)
                    steps.append(dc.replace(node, body=ir.Sequence(tuple(body))))
                case ir.Execute() | ir.StreamOut() | ir.HostCall():
                    reads = tuple(self.load_value(value, steps, loaded) for value in node.reads)
                    steps.append(dc.replace(node, reads=reads))
                case _:
                    steps.append(node)
        return steps, loaded

    # Values

    def new(self, like: ValueId) -> ValueId:
        """A value of the same shape and dtype."""
        self.avals.append(self.avals[like])
        return ValueId(len(self.avals) - 1)

    def current_name(self, value: ValueId) -> ValueId:
        """The name that a value has now."""
        return self.same.get(value, value)

    def load_value(
        self, value: ValueId, steps: list[ir.Node], loaded: dict[ValueId, ValueId]
    ) -> ValueId:
        """A value for a reader that needs it on its IPU: loaded, if it is kept elsewhere."""
        value = self.current_name(value)
        way = self.kept.get(value)
        if way is None:
            return value
        if value not in loaded:
            loaded[value] = self.new(value)
            steps.append(ir.Load(value, loaded[value], way.ipu, way.storage))
        return loaded[value]

    def store_value(self, value: ValueId, way: Kept, steps: list[ir.Node]) -> ValueId:
        """A value for a loop or branch that keeps it stored."""
        value = self.current_name(value)
        source = self.loaded_from.get(value, value)
        if source in self.kept and self.kept[source].is_like(way):
            return source
        value = self.load_value(value, steps, {})
        stored = self.new(value)
        self.kept[stored] = way
        store = ir.Store(value, stored, way.ipu, way.storage)
        if value in self.arguments:  # once, whoever asks for it
            self.same[value] = stored
            self.first.append(store)
        else:
            steps.append(store)
        return stored

    # Nodes

    def store(self, node: ir.Store, steps: list[ir.Node], loaded: dict[ValueId, ValueId]) -> None:
        """Stores a value, unless it is stored in that way already."""
        value, way = self.current_name(node.value), Kept(node.ipu, node.storage)
        old_way = self.kept.get(value)
        if old_way is not None and old_way.is_like(way):
            self.same[node.kept] = value
            return
        value = self.load_value(value, steps, loaded)
        self.kept[node.kept] = way
        loaded[node.kept] = value  # for whoever reads it in this body, it is there
        steps.append(dc.replace(node, value=value))

    def load(self, node: ir.Load, steps: list[ir.Node]) -> None:
        """An argument that is only loaded is stored first; what was never stored is there."""
        stored = self.current_name(node.kept)
        if stored in self.arguments:
            stored = self.store_value(stored, Kept(node.ipu, node.storage), steps)
        if stored not in self.kept:
            self.same[node.value] = stored
            return
        self.loaded_from[node.value] = stored
        steps.append(dc.replace(node, kept=stored))

    def loop(
        self,
        node: ir.Repeat | ir.While | ir.Pipeline,
        steps: list[ir.Node],
        loaded: dict[ValueId, ValueId],
    ) -> ir.Node:
        """A loop, some of whose variables are stored."""
        ways = [self.place(node, number, c.ipu) for number, c in enumerate(node.carry)]
        initial = [
            self.load_value(c.initial, steps, loaded)
            if way is None
            else self.store_value(c.initial, way, steps)
            for c, way in zip(node.carry, ways, strict=True)
        ]
        if isinstance(node, ir.Repeat):
            slices = (
                dc.replace(s, stacked=self.load_value(s.stacked, steps, loaded))
                for s in node.slices
            )
            node = dc.replace(node, slices=tuple(slices))
        if isinstance(node, ir.While):
            condition, _ = self.steps(node.condition.steps)
            node = dc.replace(node, condition=ir.Sequence(tuple(condition)))
        body, inside = self.steps(node.body.steps)
        leaving = [
            self.load_value(c.leaving, body, inside)
            if way is None
            else self.store_value(c.leaving, way, body)
            for c, way in zip(node.carry, ways, strict=True)
        ]
        if isinstance(node, ir.Repeat):
            stacks = (
                dc.replace(s, element=self.load_value(s.element, body, inside)) for s in node.stacks
            )
            node = dc.replace(node, stacks=tuple(stacks))
        names = zip(node.carry, initial, leaving, strict=True)
        carry = tuple(dc.replace(c, initial=first, leaving=last) for c, first, last in names)
        return dc.replace(node, carry=carry, body=ir.Sequence(tuple(body)))

    def switch(self, node: ir.Switch) -> ir.Node:
        """A branch, some of whose results are stored."""
        ways = [self.place(node, number, ipu) for number, ipu in enumerate(node.ipus)]
        branches: list[ir.Branch] = []
        for branch in node.branches:
            body, loaded = self.steps(branch.body.steps)
            results = [
                self.load_value(value, body, loaded)
                if way is None
                else self.store_value(value, way, body)
                for value, way in zip(branch.results, ways, strict=True)
            ]
            branches.append(ir.Branch(ir.Sequence(tuple(body)), tuple(results)))
        return dc.replace(node, branches=tuple(branches))

    def place(self, node: ir.Node, number: int, ipu: ir.IpuId) -> Kept | None:
        """Returns how a loop variable or a branch's result is kept; None for those on the tiles."""
        storage = self.storage_of.get((id(node), number))
        return None if storage is None else Kept(ipu, storage)


def _without_idle_moves(body: ir.Sequence, outputs: Sequence[ValueId]) -> ir.Sequence:
    """The steps without loads and stores of what nobody reads."""
    read = set(outputs)
    for node in ir.walk(body):
        read.update(ir.reads(node))
        read.update(value for inside_body in ir.bodies(node) for value in inside_body.leaving)

    def drop_idle(sequence: ir.Sequence) -> ir.Sequence:
        steps = (
            ir.with_bodies(node, lambda inside_body: drop_idle(inside_body.sequence))
            for node in sequence.steps
            if not _is_idle(node, read)
        )
        return ir.Sequence(tuple(steps))

    return drop_idle(body)


def _is_idle(node: ir.Node, read: set[ValueId]) -> bool:
    """Returns whether a node is a load or store whose result nobody reads."""
    match node:
        case ir.Load():
            return node.value not in read
        case ir.Store():
            return node.kept not in read
        case _:
            return False
