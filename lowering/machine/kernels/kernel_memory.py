"""The memory of a kernel over time: tensors that items make and free, and memory that is reused."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

from lowering.machine.kernels.alive import LivenessRecord, LiveTensor, MemoryTracker
from lowering.machine.kernels.layouts import OperandTiles


@dc.dataclass(slots=True, eq=False)
class MemoryEvent:
    """One item of a kernel, as it affects memory.

    Attributes:
      reads: owners of the values that it reads.
      births: tensors that it makes, by owner.
      temporary: work space on each tile that takes part, in bytes.
      tiles: how many take part.
      inner: its bodies, one after the other: those of a loop, or branches.
      in_place: owners of operands whose memory its result takes, if they die here, by result.
      late: whether results that take nobody's memory begin to live after the bodies inside.
      name: its name in reports.
      origin: the user's line.
      operation: the number of its operation; None for several.
    """

    reads: tuple[int, ...]
    births: dict[int, LiveTensor]
    temporary: float = 0.0
    tiles: int = 0
    inner: Sequence[NestedBody] = ()
    in_place: dict[int, tuple[int, ...]] = dc.field(default_factory=dict[int, tuple[int, ...]])
    late: bool = False
    name: str = ""
    origin: str = ""
    operation: int | None = None


@dc.dataclass(frozen=True, slots=True, eq=False)
class NestedBody:
    """A body of a loop, or a branch, inside a kernel.

    Attributes:
      life: its memory.
      operands: owner of each of its operands outside; None for one that has memory of its own.
      own: positions of the operands that it may always write over.
      successors: pairs (operand, result): the second takes the memory of the first.
    """

    life: KernelMemory
    operands: Sequence[int | None] = ()
    own: frozenset[int] = frozenset()
    successors: frozenset[tuple[int, int]] = frozenset()

    def record_liveness(self, taken_owners: Collection[int]) -> LivenessRecord:
        """Returns the body's liveness, where results around it take some owners' memory."""
        given_away = {i for i, owner in enumerate(self.operands) if owner in taken_owners}
        overwritable = self.own | given_away
        return self.life.liveness_with_donated(
            overwritable, frozenset(p for p in self.successors if p[0] in overwritable)
        )[0]


def compute_kernel_liveness(
    events: Sequence[MemoryEvent],
    operands: Iterable[int],
    results: Iterable[int],
    tiles: int,
    given_away: Iterable[int] = (),
    successors: Mapping[int, int] | None = None,
) -> tuple[LivenessRecord, dict[int, int]]:
    """Returns the liveness of a kernel, and which operands' memory its results take.

    Args:
      events: its items, in order.
      operands: owners that live outside; their memory is not counted.
      results: owners that live on after the kernel.
      tiles: how many tiles there are.
      given_away: operands that are not needed after the kernel; others are never written over.
      successors: from results to the operands whose memory they take as soon as it is free.

    Returns:
      What is alive, and for each owner that took over an operand's memory, that operand.
    """
    tracker = _MemoryAccount(events, set(operands), set(results), set(given_away), successors or {})
    memory = MemoryTracker(tiles)
    for i, event in enumerate(events):
        tracker.run_event(memory, i, event)
    return memory.finish_record(), tracker.taken


class _MemoryAccount:
    """The state of a kernel's memory while its items run; see `compute_kernel_liveness`."""

    def __init__(
        self,
        events: Sequence[MemoryEvent],
        outside: set[int],
        results: set[int],
        given_away: set[int],
        successors: Mapping[int, int],
    ) -> None:
        self._outside, self._kept, self._old = outside, results, successors
        self._new = {old: new for new, old in successors.items()}
        self._mortal = {owner for event in events for owner in event.births} | given_away
        self._last = {owner: i for i, event in enumerate(events) for owner in event.reads}
        self._free: set[int] = set()  # operands whose memory nobody has any more
        self._alive: set[int] = set()
        self.taken: dict[int, int] = {}  # from an owner to the one whose memory it has

    def run_event(self, memory: MemoryTracker, i: int, event: MemoryEvent) -> None:
        """Updates the memory for one item that runs."""
        dying = {o for o in event.reads if self._dies_at(o, i)}
        heirs: set[int] = set()
        waiting: list[int] = []
        for owner, live in event.births.items():
            heir = self._find_reused_owner(owner, event, dying)
            if heir is not None:
                dying.discard(heir)
                heirs.add(heir)
                memory.hand_over_memory(heir, owner, live)
                if heir in self._outside or heir in self.taken:
                    self.taken[owner] = self.taken.get(heir, heir)
            elif event.late:
                waiting.append(owner)
            else:
                self._begin_tensor(memory, owner, live)
        memory.record_step(event.name, event.origin, event.temporary, event.tiles, event.operation)
        for body in event.inner:
            memory.record_body(body.record_liveness(heirs))
        if event.late:
            self._end_tensors(memory, dying)
            for owner in waiting:
                self._begin_tensor(memory, owner, event.births[owner])
            memory.record_step(event.name, event.origin)
        self._alive.update(event.births)
        unread = {o for o in event.births if o not in self._last and o not in self._kept}
        self._end_tensors(memory, dying | unread)

    def _dies_at(self, owner: int, i: int) -> bool:
        return self._last[owner] == i and owner in self._mortal and owner not in self._kept

    def _find_reused_owner(self, owner: int, event: MemoryEvent, dying: set[int]) -> int | None:
        """Returns the owner whose memory a new tensor takes, preferably its predecessor."""
        if owner not in event.in_place:
            return None
        old = self._old.get(owner)
        able = [o for o in event.in_place[owner] if o in dying]
        return min(able, key=lambda o: self.taken.get(o, o) != old, default=None)

    def _begin_tensor(self, memory: MemoryTracker, owner: int, live: LiveTensor) -> None:
        old = self._old.get(owner)
        if old in self._free:
            self._free.discard(old)
            self.taken[owner] = old
        else:
            memory.add_tensor(owner, live)

    def _end_tensors(self, memory: MemoryTracker, dying: Iterable[int]) -> None:
        """Ends the life of tensors; a result that succeeds an operand moves to its memory."""
        for owner in dying:
            memory.drop_tensor(owner)
            self._alive.discard(owner)
            operand = self.taken.get(owner, owner)
            if operand not in self._outside:
                continue
            new = self._new.get(operand)
            if new in self._alive and new not in self.taken:
                memory.drop_tensor(new)
                self.taken[new] = operand
            else:
                self._free.add(operand)


class KernelMemory:
    """The memory of a kernel beside its operands; it may write over operands that are given away.

    Args:
      events: its items, in order.
      operands: owners that live outside.
      results: owners that live on after the kernel, one for each result.
      tiles: how many tiles there are.
    """

    def __init__(
        self,
        events: Sequence[MemoryEvent],
        operands: Sequence[int],
        results: Sequence[int],
        tiles: int,
    ) -> None:
        self.events, self._operands, self.results = events, operands, tuple(results)
        self._tiles = tiles
        self._known: dict[object, tuple[LivenessRecord, tuple[int | None, ...]]] = {}

    @functools.cached_property
    def births(self) -> Mapping[int, LiveTensor]:
        """The tensors that its items make, by their owners."""
        return {owner: live for event in self.events for owner, live in event.births.items()}

    def liveness_with_donated(
        self,
        donated: frozenset[int],
        successors: frozenset[tuple[int, int]] = frozenset(),
        operand_tiles: OperandTiles = (),
    ) -> tuple[LivenessRecord, tuple[int | None, ...]]:
        """Returns the liveness of the kernel if some operands are not needed any more.

        Args:
          donated: positions of these operands.
          successors: pairs (operand given away, result): an update and what it is of.
          operand_tiles: the tiles for which stand-ins stand; (): stand-ins are left as they are.

        Returns:
          The liveness, with `results` as keys of the tensors left, and for each result the operand
          whose memory it has: one that was given away, or the one that it is.
        """
        key = donated, successors, operand_tiles
        if key not in self._known and operand_tiles:
            alive, in_place = self.liveness_with_donated(donated, successors)
            self._known[key] = alive.for_operands(operand_tiles), in_place
        elif key not in self._known:
            alive, operand_of_owner = compute_kernel_liveness(
                self.events,
                self._operands,
                self.results,
                self._tiles,
                [self._operands[i] for i in donated],
                {self.results[new]: self._operands[old] for old, new in successors},
            )
            number = {owner: i for i, owner in enumerate(self._operands)}
            in_place = tuple(
                number.get(operand_of_owner.get(owner, owner)) for owner in self.results
            )
            self._known[key] = alive, in_place
        return self._known[key]
