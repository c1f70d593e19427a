"""Which loop variables and results of branches are better kept stored: a part of `keep_stored`."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterator, Sequence

from lowering import ir
from lowering.ops.storage import Storage
from lowering.units import IpuId, ValueId


@dc.dataclass(frozen=True, slots=True)
class Kept:
    """Where a value is stored, and how."""

    ipu: IpuId
    storage: Storage

    def is_like(self, other: Kept) -> bool:
        """Returns whether values kept in the two ways are interchangeable."""
        return self.ipu == other.ipu and are_alike(self.storage, other.storage)


@dc.dataclass(frozen=True, slots=True)
class Slot:
    """A loop variable, or a result of a branch: one tensor, whichever way is taken.

    Attributes:
      owner: the identity of the loop or branch.
      place: its number there.
      ipu: where it is.
      names: what it is called, inside of a loop and after it.
      inputs: what it may be set to, before a loop and by an iteration, or by each branch.
      is_loop: whether it is a loop's.
      is_fixed: whether nothing can be added to the body that sets it.
    """

    owner: int
    place: int
    ipu: IpuId
    names: tuple[ValueId, ...]
    inputs: tuple[ValueId, ...]
    is_loop: bool
    is_fixed: bool = False


def are_alike(one: Storage, other: Storage) -> bool:
    """Whether two ways to store a value leave the same thing."""
    return (one.remote, one.sharded) == (other.remote, other.sharded)


def find_slots(program: ir.Program) -> list[tuple[Slot, Storage]]:
    """The slots that are to be kept stored, and how.

    A slot is, if something loads it or if a stored value is what it may be set to. So is one that
    does nothing but hand its value on to such slots, or store it itself, and take it back. A
    branch's result is only if no branch would have to store it for that.
    """
    return _Search(program).run()


class _Search:
    """One look at a program."""

    def __init__(self, program: ir.Program) -> None:
        nodes = list(ir.walk(program.body))
        self.slots = [slot for node in nodes for slot in _slots(node)]
        self.stores = {n.kept: n for n in nodes if isinstance(n, ir.Store)}
        self.loads = {n.value: n for n in nodes if isinstance(n, ir.Load)}
        self.loaded: dict[ValueId, list[ir.Load]] = collections.defaultdict(list)
        for load in self.loads.values():
            self.loaded[load.kept].append(load)
        self.stored: dict[ValueId, list[ir.Store]] = collections.defaultdict(list)
        for store in self.stores.values():
            self.stored[store.value].append(store)
        self.fed: dict[ValueId, list[Slot]] = collections.defaultdict(list)
        for slot in self.slots:
            for value in slot.inputs:
                self.fed[value].append(slot)
        self.read = {value for node in nodes for value in whole_reads(node)}
        self.arguments = set(program.inputs) - self.read
        self.owner_of: dict[ValueId, Slot] = {
            name: slot for slot in self.slots for name in slot.names
        }
        self.chosen: dict[tuple[int, int], Storage] = {}

    def run(self) -> list[tuple[Slot, Storage]]:
        """Adds slots until none is left that wants to be stored."""
        waiting, count_before = list(self.slots), -1
        while count_before != len(self.chosen):
            count_before = len(self.chosen)
            for slot in waiting:
                storage = self.directly(slot) or self.by_others(slot)
                if storage is not None and self.may(slot, storage):
                    self.chosen[slot.owner, slot.place] = storage
            waiting = [slot for slot in waiting if self.of(slot) is None]
        pairs = ((slot, self.of(slot)) for slot in self.slots)
        return [(slot, storage) for slot, storage in pairs if storage is not None]

    def of(self, slot: Slot) -> Storage | None:
        """Returns how a slot is stored, or None while that is not known."""
        return self.chosen.get((slot.owner, slot.place))

    def directly(self, slot: Slot) -> Storage | None:
        """Returns how stores and loads of a slot keep it, if they all agree."""
        asked = [store for v in slot.inputs if (store := self.stores.get(v)) is not None]
        ways: list[ir.Store | ir.Load] = [*asked]
        ways += [load for name in slot.names for load in self.loaded[name]]
        return _agreed(slot, ways)

    def by_others(self, slot: Slot) -> Storage | None:
        """Returns how the slots around a slot are stored, if it only passes its value between them.

        Whatever enters a loop may have to be stored once, and loaded once after it; what an
        iteration reads and leaves, each time.
        """
        inside = slot.names[:1] if slot.is_loop else ()
        fed = [s for name in slot.names for s in self.fed[name] if s is not slot]
        is_read = any(name in self.read for name in inside)
        if is_read or any(
            self.of(s) is None for name in inside for s in self.fed[name] if s is not slot
        ):
            return None
        ways: list[ir.Store | ir.Load] = [s for name in slot.names for s in self.stored[name]]
        ways += [load for v in slot.inputs if (load := self.loads.get(v)) is not None]
        neighbours = [*fed, *(s for v in slot.inputs if (s := self.owner_of.get(v)) is not None)]
        asked = [way.storage for way in ways if way.ipu == slot.ipu]
        asked += [
            storage for neighbour in neighbours if (storage := self.of(neighbour)) is not None
        ]
        if not asked or not all(are_alike(asked[0], storage) for storage in asked):
            return None
        sources = slot.inputs[1:] if slot.is_loop else slot.inputs
        return asked[0] if all(self.comes_stored(v, slot, asked[0]) for v in sources) else None

    def comes_stored(self, value: ValueId, slot: Slot, storage: Storage) -> bool:
        """Returns whether a value is stored already, was just loaded, or is an idle argument."""
        if value in slot.names or value in self.arguments:
            return True
        way = self.loads.get(value) or self.stores.get(value)
        if way is not None:
            return way.ipu == slot.ipu and are_alike(way.storage, storage)
        neighbour = self.owner_of.get(value)
        of_other = None if neighbour is None else self.of(neighbour)
        return of_other is not None and are_alike(of_other, storage)

    def may(self, slot: Slot, storage: Storage) -> bool:
        """Returns whether a slot can be stored, and no branch has to store only for another one."""
        inputs = () if slot.is_loop else slot.inputs
        if slot.is_fixed:
            inputs = slot.inputs[1:]
        return all(self.comes_stored(value, slot, storage) for value in inputs)


def _agreed(slot: Slot, ways: Sequence[ir.Store | ir.Load]) -> Storage | None:
    if not ways or any(way.ipu != slot.ipu for way in ways):
        return None
    first = ways[0].storage
    return first if all(are_alike(first, way.storage) for way in ways) else None


def _slots(node: ir.Node) -> Iterator[Slot]:
    match node:
        case ir.Repeat() | ir.While() | ir.Pipeline():
            # A pipeline's body is tasks alone.
            is_fixed = isinstance(node, ir.Pipeline)
            for place, c in enumerate(node.carry):
                names, inputs = (c.entering, c.final), (c.initial, c.leaving)
                yield Slot(id(node), place, c.ipu, names, inputs, True, is_fixed)
        case ir.Switch():
            for place, (value, ipu) in enumerate(zip(node.writes, node.ipus, strict=True)):
                inputs = tuple(branch.results[place] for branch in node.branches)
                yield Slot(id(node), place, ipu, (value,), inputs, False)
        case _:
            return


def whole_reads(node: ir.Node) -> Iterator[ValueId]:
    """Lists the values that a node needs on the tiles, whatever is stored elsewhere."""
    match node:
        case ir.Execute() | ir.StreamOut() | ir.HostCall():
            yield from node.reads
        case ir.Repeat():
            yield from (s.stacked for s in node.slices)
            yield from (s.element for s in node.stacks)
        case _:
            return
