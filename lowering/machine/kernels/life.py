"""The life of a kernel: what its items bring and end, and whose memory its results take."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Iterable, Mapping, Sequence

from lowering.machine.kernels.alive import Alive, Live, Memory


@dc.dataclass(slots=True, eq=False)
class Event:
    """One item of a kernel, as memory sees it.

    Attributes:
      reads: owners of what it reads.
      births: tensors that it makes, by owner.
      temporary: work space on each tile that takes part, in bytes.
      tiles: how many take part.
      inner: what goes on inside it, one after the other: bodies of a loop, or branches.
      in_place: owners of operands whose memory its result takes, if they die here, by result.
      late: whether results that take nobody's memory begin to live behind what goes on inside.
      name: what reports call it.
      origin: the user's line.
      operation: the number of the operation that it is; None for several.
    """

    reads: tuple[int, ...]
    births: dict[int, Live]
    temporary: float = 0.0
    tiles: int = 0
    inner: Sequence[Inside] = ()
    in_place: dict[int, tuple[int, ...]] = dc.field(default_factory=dict[int, tuple[int, ...]])
    late: bool = False
    name: str = ""
    origin: str = ""
    operation: int | None = None


@dc.dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """A body of a loop, or a branch.

    Attributes:
      life: what it holds.
      operands: owner of each of its operands outside; None for one that has memory of its own.
      own: positions of the operands that it may write over in any case.
      successors: pairs (operand, result): the second takes the place of the first.
    """

    life: Life
    operands: Sequence[int | None] = ()
    own: frozenset[int] = frozenset()
    successors: frozenset[tuple[int, int]] = frozenset()

    def alive(self, taken: Collection[int]) -> Alive:
        """Its account, where results of what it is in take the memory of some owners."""
        given = {i for i, owner in enumerate(self.operands) if owner in taken}
        away = self.own | given
        return self.life.giving(away, frozenset(p for p in self.successors if p[0] in away))[0]


def account(
    events: Sequence[Event],
    operands: Iterable[int],
    results: Iterable[int],
    tiles: int,
    given_away: Iterable[int] = (),
    successors: Mapping[int, int] | None = None,
) -> tuple[Alive, dict[int, int]]:
    """The memory of a kernel, and which operands' memory its results take.

    Args:
      events: its items, in order.
      operands: owners that live outside; their memory is not counted.
      results: owners that live on after the kernel.
      tiles: how many tiles there are.
      given_away: those operands that nobody needs after the kernel; others are never written over.
      successors: from results to the operands in whose place they go as soon as that is free.

    Returns:
      What is alive, and for each owner that took over an operand's memory, that operand.
    """
    running = _Account(events, set(operands), set(results), set(given_away), successors or {})
    memory = Memory(tiles)
    for i, event in enumerate(events):
        running.event(memory, i, event)
    return memory.result(), running.taken


class _Account:
    """A kernel's memory while it runs; see `account`."""

    def __init__(
        self,
        events: Sequence[Event],
        outside: set[int],
        kept: set[int],
        given_away: set[int],
        successors: Mapping[int, int],
    ) -> None:
        self._outside, self._kept, self._old = outside, kept, successors
        self._new = {old: new for new, old in successors.items()}
        self._mortal = {owner for event in events for owner in event.births} | given_away
        self._last = {owner: i for i, event in enumerate(events) for owner in event.reads}
        self._free: set[int] = set()  # operands whose memory nobody has any more
        self._alive: set[int] = set()
        self.taken: dict[int, int] = {}  # from an owner to the one whose memory it has

    def event(self, memory: Memory, i: int, event: Event) -> None:
        """One item runs."""
        dying = {o for o in event.reads if self._dies(o, i)}
        heirs: set[int] = set()
        waiting: list[int] = []
        for owner, live in event.births.items():
            heir = self._heir(owner, event, dying)
            if heir is not None:
                dying.discard(heir)
                heirs.add(heir)
                memory.rename(heir, owner, live)
                if heir in self._outside or heir in self.taken:
                    self.taken[owner] = self.taken.get(heir, heir)
            elif event.late:
                waiting.append(owner)
            else:
                self._begin(memory, owner, live)
        memory.step(event.name, event.origin, event.temporary, event.tiles, event.operation)
        for inner in event.inner:
            memory.steps(inner.alive(heirs))
        if event.late:
            self._end(memory, dying)
            for owner in waiting:
                self._begin(memory, owner, event.births[owner])
            memory.step(event.name, event.origin)
        self._alive.update(event.births)
        unread = {o for o in event.births if o not in self._last and o not in self._kept}
        self._end(memory, dying | unread)

    def _dies(self, owner: int, i: int) -> bool:
        return self._last[owner] == i and owner in self._mortal and owner not in self._kept

    def _heir(self, owner: int, event: Event, dying: set[int]) -> int | None:
        """Whose memory a new tensor takes: that of what it succeeds before any other's."""
        old = self._old.get(owner)
        able = [o for o in event.in_place.get(owner, ()) if o in dying]
        return min(able, key=lambda o: self.taken.get(o, o) != old, default=None)

    def _begin(self, memory: Memory, owner: int, live: Live) -> None:
        old = self._old.get(owner)
        if old in self._free:
            self._free.discard(old)
            self.taken[owner] = old
        else:
            memory.add(owner, live)

    def _end(self, memory: Memory, dying: Iterable[int]) -> None:
        """Tensors die; what succeeds an operand moves to its place."""
        for owner in dying:
            memory.drop(owner)
            self._alive.discard(owner)
            place = self.taken.get(owner, owner)
            if place not in self._outside:
                continue
            new = self._new.get(place)
            if new in self._alive and new not in self.taken:
                memory.drop(new)
                self.taken[new] = place
            else:
                self._free.add(place)


class Life:
    """What a kernel holds beside its operands; it may write over those that are given away.

    Args:
      events: its items, in order.
      operands: owners that live outside.
      results: owners that live on after the kernel, one for each result.
      tiles: how many tiles there are.
    """

    def __init__(
        self, events: Sequence[Event], operands: Sequence[int], results: Sequence[int], tiles: int
    ) -> None:
        self._events, self._operands, self.results = events, operands, tuple(results)
        self._tiles = tiles
        self._known: dict[object, tuple[Alive, tuple[int | None, ...]]] = {}

    def giving(
        self, away: frozenset[int], successors: frozenset[tuple[int, int]] = frozenset()
    ) -> tuple[Alive, tuple[int | None, ...]]:
        """The memory if nobody needs some operands any more.

        Args:
          away: positions of these operands.
          successors: pairs (operand given away, result): an update and what it is of.

        Returns:
          What is alive, with `results` as keys of what is left, and for each result the operand
          whose memory it has: one that was given away, or the one that it is.
        """
        key = away, successors
        if key not in self._known:
            alive, taken = account(
                self._events,
                self._operands,
                self.results,
                self._tiles,
                [self._operands[i] for i in away],
                {self.results[new]: self._operands[old] for old, new in successors},
            )
            number = {owner: i for i, owner in enumerate(self._operands)}
            in_place = tuple(number.get(taken.get(owner, owner)) for owner in self.results)
            self._known[key] = alive, in_place
        return self._known[key]
