"""The choice of loop variables and branches' results that `keep_loop_variables_stored` stores."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterator, Sequence

from lowering import ir
from lowering.ground import IpuId, ValueId
from lowering.ops import Storage


@dc.dataclass(frozen=True, slots=True)
class StoredWay:
    """The IPU and the storage in which a value is kept."""

    ipu: IpuId
    storage: Storage

    def is_interchangeable_with(self, other_way: StoredWay) -> bool:
        """Returns whether values kept in the two ways are interchangeable."""
        return self.ipu == other_way.ipu and stores_equally(self.storage, other_way.storage)


@dc.dataclass(frozen=True, slots=True)
class Slot:
    """A loop variable, or a result of a branch, as one tensor with several names.

    Attributes:
      owner: the identity of the loop or branch.
      place: its number there.
      ipu: its IPU.
      names: its values, inside of a loop and after it.
      inputs: the values that it may get, before a loop and from an iteration, or from each branch.
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


def stores_equally(first_storage: Storage, second_storage: Storage) -> bool:
    """Returns whether two ways to store a value leave the same stored value."""
    return (first_storage.remote, first_storage.sharded) == (
        second_storage.remote,
        second_storage.sharded,
    )


def find_slots_to_store(program: ir.Program) -> list[tuple[Slot, Storage]]:
    """Returns the slots that are to be kept stored, and how.

    A slot stays stored if something loads it, or if it may be set to a stored value. So does one
    that only hands its value on to such slots, or stores it itself, and takes it back. A branch's
    result stays stored only if no branch would have to store it for that.
    """
    return _Search(program).find_stored_slots()


class _Search:
    """The search for slots that stay stored, in one program."""

    def __init__(self, program: ir.Program) -> None:
        nodes = list(ir.walk_nodes(program.body))
        self.slots = [slot for node in nodes for slot in _slots_of_node(node)]
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
        self.read = {value for node in nodes for value in values_read_on_tiles(node)}
        self.arguments = set(program.inputs) - self.read
        self.owner_of: dict[ValueId, Slot] = {
            name: slot for slot in self.slots for name in slot.names
        }
        self.chosen: dict[tuple[int, int], Storage] = {}

    def find_stored_slots(self) -> list[tuple[Slot, Storage]]:
        """Adds slots until no other one is to be stored."""
        waiting, count_before = list(self.slots), -1
        while count_before != len(self.chosen):
            count_before = len(self.chosen)
            for slot in waiting:
                storage = self.storage_by_own_accesses(slot) or self.storage_by_neighbours(slot)
                if storage is not None and self.can_be_stored(slot, storage):
                    self.chosen[slot.owner, slot.place] = storage
            waiting = [slot for slot in waiting if self.storage_of_slot(slot) is None]
        pairs = ((slot, self.storage_of_slot(slot)) for slot in self.slots)
        return [(slot, storage) for slot, storage in pairs if storage is not None]

    def storage_of_slot(self, slot: Slot) -> Storage | None:
        """Returns how a slot is stored, or None while that is not known."""
        return self.chosen.get((slot.owner, slot.place))

    def storage_by_own_accesses(self, slot: Slot) -> Storage | None:
        """Returns how stores and loads of a slot keep it, if they all agree."""
        stores_of_inputs = [store for v in slot.inputs if (store := self.stores.get(v)) is not None]
        accesses: list[ir.Store | ir.Load] = [*stores_of_inputs]
        accesses += [load for name in slot.names for load in self.loaded[name]]
        return _common_storage(slot, accesses)

    def storage_by_neighbours(self, slot: Slot) -> Storage | None:
        """Returns how the slots around a slot are stored, if it only passes its value between them.

        A value that enters a loop may have to be stored once, and loaded once after it; one that
        an iteration reads and leaves, each time.
        """
        inside = slot.names[:1] if slot.is_loop else ()
        fed = [s for name in slot.names for s in self.fed[name] if s is not slot]
        is_read = any(name in self.read for name in inside)
        if is_read or any(
            self.storage_of_slot(s) is None
            for name in inside
            for s in self.fed[name]
            if s is not slot
        ):
            return None
        accesses: list[ir.Store | ir.Load] = [s for name in slot.names for s in self.stored[name]]
        accesses += [load for v in slot.inputs if (load := self.loads.get(v)) is not None]
        neighbours = [*fed, *(s for v in slot.inputs if (s := self.owner_of.get(v)) is not None)]
        storages = [way.storage for way in accesses if way.ipu == slot.ipu]
        storages += [
            storage
            for neighbour in neighbours
            if (storage := self.storage_of_slot(neighbour)) is not None
        ]
        if not storages or not all(stores_equally(storages[0], storage) for storage in storages):
            return None
        sources = slot.inputs[1:] if slot.is_loop else slot.inputs
        return (
            storages[0] if all(self.comes_stored(v, slot, storages[0]) for v in sources) else None
        )

    def comes_stored(self, value: ValueId, slot: Slot, storage: Storage) -> bool:
        """Returns whether a value is stored already, was just loaded, or is an idle argument."""
        if value in slot.names or value in self.arguments:
            return True
        way = self.loads.get(value) or self.stores.get(value)
        if way is not None:
            return way.ipu == slot.ipu and stores_equally(way.storage, storage)
        neighbour = self.owner_of.get(value)
        of_other = None if neighbour is None else self.storage_of_slot(neighbour)
        return of_other is not None and stores_equally(of_other, storage)

    def can_be_stored(self, slot: Slot, storage: Storage) -> bool:
        """Returns whether a slot can be stored, and no branch has to store only for another one."""
        inputs = () if slot.is_loop else slot.inputs
        if slot.is_fixed:
            inputs = slot.inputs[1:]
        return all(self.comes_stored(value, slot, storage) for value in inputs)


def _common_storage(slot: Slot, ways: Sequence[ir.Store | ir.Load]) -> Storage | None:
    if not ways or any(way.ipu != slot.ipu for way in ways):
        return None
    first = ways[0].storage
    return first if all(stores_equally(first, way.storage) for way in ways) else None


def _slots_of_node(node: ir.Node) -> Iterator[Slot]:
    match node:
        case ir.Repeat() | ir.While() | ir.Pipeline():
            # A pipeline's body is tasks alone.
            is_fixed = isinstance(node, ir.Pipeline)
            for number, c in enumerate(node.carry):
                names, inputs = (c.entering, c.final), (c.initial, c.leaving)
                yield Slot(id(node), number, c.ipu, names, inputs, True, is_fixed)
        case ir.Switch():
            for number, (value, ipu) in enumerate(zip(node.writes, node.ipus, strict=True)):
                inputs = tuple(branch.results[number] for branch in node.branches)
                yield Slot(id(node), number, ipu, (value,), inputs, False)
        case _:
            return


def values_read_on_tiles(node: ir.Node) -> Iterator[ValueId]:
    """Yields the values that a node reads on the tiles, whatever is stored elsewhere."""
    match node:
        case ir.Execute() | ir.StreamOut() | ir.HostCall():
            yield from node.reads
        case ir.Repeat():
            yield from (s.stacked for s in node.slices)
            yield from (s.element for s in node.stacks)
        case _:
            return
