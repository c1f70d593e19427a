"""The storage of values between weight updates, in every loop that carries them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence

from lowering import ir
from lowering.ground import ValueId
from lowering.jaxprs import Aval
from lowering.ops import Storage
from lowering.passes.stored_slots import Slot, StoredWay, find_slots_to_store, values_read_on_tiles


def keep_loop_variables_stored(program: ir.Program) -> ir.Program:
    """Stores loop variables before their loop, and loads them only where they are read.

    Before: a weight update loads its state and stores it again. The loops around it carry that
            state as they carry anything else: they start with a value that was never stored.
    After:  such a loop variable is stored when its loop starts, it stays stored from iteration to
            iteration, also through branches and loops inside of loops, and it is loaded where
            something else than a weight update reads it. A loop that only stores what it carries,
            and brings it back, carries it stored.
    """
    if not any(isinstance(node, ir.Load | ir.Store) for node in ir.walk_nodes(program.body)):
        return program
    return _Keeper(program, find_slots_to_store(program)).rewrite_program()


class _Keeper:
    """The rewriting of a program whose loop variables stay stored.

    Attributes:
      kept: where and how values are stored, by every name that they have then.
      same: for names that turned out to be other values' names, those values.
      first: the steps that the program begins with.
      loaded_from: the stored value of each load, by the load's result.
    """

    def __init__(self, program: ir.Program, slots: Sequence[tuple[Slot, Storage]]) -> None:
        self.program = program
        self.avals: list[Aval] = list(program.avals)
        self.kept: dict[ValueId, StoredWay] = {
            name: StoredWay(slot.ipu, storage) for slot, storage in slots for name in slot.names
        }
        self.storage_of = {(slot.owner, slot.place): storage for slot, storage in slots}
        self.same: dict[ValueId, ValueId] = {}
        self.loaded_from: dict[ValueId, ValueId] = {}
        self.first: list[ir.Node] = []
        read = {
            value for node in ir.walk_nodes(program.body) for value in values_read_on_tiles(node)
        }
        self.arguments = set(program.inputs) - read

    def rewrite_program(self) -> ir.Program:
        """Returns the program, rewritten."""
        steps, loaded = self.rewrite_steps(self.program.body.steps)
        outputs = [self.load_value(value, steps, loaded) for value in self.program.outputs]
        body = _drop_unread_moves(ir.Sequence((*self.first, *steps)), outputs)
        return dc.replace(self.program, avals=tuple(self.avals), body=body, outputs=tuple(outputs))

    def rewrite_steps(
        self, nodes: Iterable[ir.Node]
    ) -> tuple[list[ir.Node], dict[ValueId, ValueId]]:
        """Rewrites the steps of a body; returns also the values that were loaded in it."""
        steps: list[ir.Node] = []
        loaded: dict[ValueId, ValueId] = {}
        for node in nodes:
            match node:
                case ir.Store():
                    self.rewrite_store(node, steps, loaded)
                case ir.Load():
                    self.rewrite_load(node, steps)
                case ir.Repeat() | ir.While() | ir.Pipeline():
                    steps.append(self.rewrite_loop(node, steps, loaded))
                case ir.Switch():
                    steps.append(self.rewrite_switch(node))
                case ir.Task():
                    body, _ = self.rewrite_steps(node.body.steps)
                    steps.append(dc.replace(node, body=ir.Sequence(tuple(body))))
                case ir.Execute() | ir.StreamOut() | ir.HostCall():
                    reads = tuple(self.load_value(value, steps, loaded) for value in node.reads)
                    steps.append(dc.replace(node, reads=reads))
                case _:
                    steps.append(node)
        return steps, loaded

    # Values

    def new_value_like(self, like: ValueId) -> ValueId:
        """Adds a value of the same shape and dtype."""
        self.avals.append(self.avals[like])
        return ValueId(len(self.avals) - 1)

    def current_name(self, value: ValueId) -> ValueId:
        """Returns the name that a value has now."""
        return self.same.get(value, value)

    def load_value(
        self, value: ValueId, steps: list[ir.Node], loaded: dict[ValueId, ValueId]
    ) -> ValueId:
        """Returns a value for a reader on its IPU; loads it if it is stored."""
        value = self.current_name(value)
        way = self.kept.get(value)
        if way is None:
            return value
        if value not in loaded:
            loaded[value] = self.new_value_like(value)
            steps.append(ir.Load(value, loaded[value], way.ipu, way.storage))
        return loaded[value]

    def store_value(self, value: ValueId, way: StoredWay, steps: list[ir.Node]) -> ValueId:
        """Returns a value for a loop or branch that keeps it stored; stores it if need be."""
        value = self.current_name(value)
        source = self.loaded_from.get(value, value)
        if source in self.kept and self.kept[source].is_interchangeable_with(way):
            return source
        value = self.load_value(value, steps, {})
        stored = self.new_value_like(value)
        self.kept[stored] = way
        store = ir.Store(value, stored, way.ipu, way.storage)
        if value in self.arguments:  # an argument is stored once, for all readers
            self.same[value] = stored
            self.first.append(store)
        else:
            steps.append(store)
        return stored

    # Nodes

    def rewrite_store(
        self, node: ir.Store, steps: list[ir.Node], loaded: dict[ValueId, ValueId]
    ) -> None:
        """Stores a value, unless it is stored in that way already."""
        value, way = self.current_name(node.value), StoredWay(node.ipu, node.storage)
        old_way = self.kept.get(value)
        if old_way is not None and old_way.is_interchangeable_with(way):
            self.same[node.kept] = value
            return
        value = self.load_value(value, steps, loaded)
        self.kept[node.kept] = way
        loaded[node.kept] = value  # readers in this body need no load
        steps.append(dc.replace(node, value=value))

    def rewrite_load(self, node: ir.Load, steps: list[ir.Node]) -> None:
        """Loads a value; stores an argument before that, and skips a value that is not stored."""
        stored = self.current_name(node.kept)
        if stored in self.arguments:
            stored = self.store_value(stored, StoredWay(node.ipu, node.storage), steps)
        if stored not in self.kept:
            self.same[node.value] = stored
            return
        self.loaded_from[node.value] = stored
        steps.append(dc.replace(node, kept=stored))

    def rewrite_loop(
        self,
        node: ir.Repeat | ir.While | ir.Pipeline,
        steps: list[ir.Node],
        loaded: dict[ValueId, ValueId],
    ) -> ir.Node:
        """Returns a loop, some of whose variables stay stored."""
        ways = [self.way_of_slot(node, number, c.ipu) for number, c in enumerate(node.carry)]
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
            condition, _ = self.rewrite_steps(node.condition.steps)
            node = dc.replace(node, condition=ir.Sequence(tuple(condition)))
        body, inside = self.rewrite_steps(node.body.steps)
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

    def rewrite_switch(self, node: ir.Switch) -> ir.Node:
        """Returns a branch, some of whose results stay stored."""
        ways = [self.way_of_slot(node, number, ipu) for number, ipu in enumerate(node.ipus)]
        branches: list[ir.Branch] = []
        for branch in node.branches:
            body, loaded = self.rewrite_steps(branch.body.steps)
            results = [
                self.load_value(value, body, loaded)
                if way is None
                else self.store_value(value, way, body)
                for value, way in zip(branch.results, ways, strict=True)
            ]
            branches.append(ir.Branch(ir.Sequence(tuple(body)), tuple(results)))
        return dc.replace(node, branches=tuple(branches))

    def way_of_slot(self, node: ir.Node, slot_number: int, ipu: ir.IpuId) -> StoredWay | None:
        """Returns how a loop variable or a branch's result is kept; None for those on the tiles."""
        storage = self.storage_of.get((id(node), slot_number))
        return None if storage is None else StoredWay(ipu, storage)


def _drop_unread_moves(body: ir.Sequence, outputs: Sequence[ValueId]) -> ir.Sequence:
    """Returns the steps without loads and stores whose results nobody reads."""
    read = set(outputs)
    for node in ir.walk_nodes(body):
        read.update(ir.values_read(node))
        read.update(
            value
            for inside_body in ir.bodies_of_node(node)
            for value in inside_body.values_read_after
        )

    def drop_idle(sequence: ir.Sequence) -> ir.Sequence:
        steps = (
            ir.rewrite_bodies(node, lambda inside_body: drop_idle(inside_body.sequence))
            for node in sequence.steps
            if not _is_unread_move(node, read)
        )
        return ir.Sequence(tuple(steps))

    return drop_idle(body)


def _is_unread_move(node: ir.Node, read: set[ValueId]) -> bool:
    """Returns whether a node is a load or store whose result nobody reads."""
    match node:
        case ir.Load():
            return node.value not in read
        case ir.Store():
            return node.kept not in read
        case _:
            return False
