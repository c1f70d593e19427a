"""What of a kernel's tensors is alive when, and how much memory that takes on each tile."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lowering.machine.kernels.layouts import Laid


@dc.dataclass(frozen=True, slots=True)
class Live:
    """A tensor that is alive for a while.

    Attributes:
      name: shape and dtype.
      operation: what makes it.
      origin: the user's `file:line`, or "".
      laid: how it lies.
      category: one of `profile.CATEGORIES`.
      value: its number in the Program; None inside of kernels.
      path: what the user calls it, or "".
    """

    name: str
    operation: str
    origin: str
    laid: Laid
    category: str = "activations"
    value: int | None = None
    path: str = ""

    @property
    def total_bytes(self) -> int:
        """On all tiles together."""
        return self.laid.mapping.total_bytes


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alive:
    """What goes on in a piece of a program, and what it holds beside what was there before.

    A tensor is there from its first step to its last; one whose last step comes before its first
    was never there. Work space lies on the first tiles.

    Attributes:
      tile_peak_bytes: int64 [tiles], the most that each tile holds at any step.
      names: of the steps.
      origins: the user's line of each.
      bytes: int64 [steps], on all tiles together, work space included.
      space: int64 [steps], work space on each tile that has any.
      space_tiles: int64 [steps], how many tiles have it.
      tensors: all that are alive at some step.
      first: int64 [tensors].
      last: int64 [tensors].
      left: which of the tensors are there after the last step, by their keys.
    """

    tile_peak_bytes: np.ndarray
    names: tuple[str, ...]
    origins: tuple[str, ...]
    bytes: np.ndarray
    space: np.ndarray
    space_tiles: np.ndarray
    tensors: tuple[Live, ...]
    first: np.ndarray
    last: np.ndarray
    left: Mapping[object, int]

    @property
    def temporary_bytes(self) -> np.ndarray:
        """int64 [steps]: work space, on all tiles together."""
        return self.space * self.space_tiles

    @property
    def worst(self) -> int:
        """The first step that needs most; 0 if there are none."""
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    @property
    def most_bytes(self) -> int:
        """On all tiles together, at that step."""
        return int(self.bytes.max(initial=0))

    def at(self, step: int) -> list[Live]:
        """The tensors that are there at a step."""
        there = (self.first <= step) & (step <= self.last)
        return [self.tensors[i] for i in np.flatnonzero(there)]


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
      name: what reports call it.
      origin: the user's line.
    """

    reads: tuple[int, ...]
    births: dict[int, Live]
    temporary: float = 0.0
    tiles: int = 0
    inner: Sequence[Alive] = ()
    in_place: dict[int, tuple[int, ...]] = dc.field(default_factory=dict[int, tuple[int, ...]])
    name: str = ""
    origin: str = ""


class Memory:
    """A running account of one IPU's tiles.

    Args:
      tiles: how many there are.
    """

    def __init__(self, tiles: int) -> None:
        self._live = np.zeros(tiles, dtype=np.int64)
        self._peak = np.zeros(tiles, dtype=np.int64)
        self._total = 0
        self._alive: dict[object, int] = {}
        self._tensors: list[Live] = []
        self._first: list[int] = []
        self._last: list[int] = []
        self._steps: list[tuple[str, str, int, int, int]] = []  # in the order of `Alive`

    def add(self, key: object, tensor: Live) -> None:
        """A tensor begins to live; it takes the place of one of the same name."""
        self.drop(key)
        self._begin(key, tensor)
        self._live += tensor.laid.mapping.bytes_per_tile()
        self._total += tensor.total_bytes

    def drop(self, key: object) -> None:
        """A tensor dies, if it was alive."""
        if key in self._alive:
            tensor = self._end(key)
            self._live -= tensor.laid.mapping.bytes_per_tile()
            self._total -= tensor.total_bytes

    def rename(self, key: object, new: object, tensor: Live) -> None:
        """Another tensor takes over the memory of one, if that was alive.

        The memory of a variable stays a variable's.
        """
        if key not in self._alive:
            return
        old = self._end(key)
        category = old.category if old.category == "variables" else tensor.category
        self._begin(new, dc.replace(tensor, laid=old.laid, category=category))

    def step(self, name: str, origin: str = "", temporary: float = 0.0, tiles: int = 0) -> None:
        """Something runs, with work space on the first `tiles` tiles."""
        space = round(temporary)
        self._steps.append((name, origin, self._total + space * tiles, space, tiles))
        used = self._live
        if space:
            used = used.copy()
            used[:tiles] += space
        np.maximum(self._peak, used, out=self._peak)

    def steps(self, inner: Alive, left: Mapping[int, tuple[object, Live]] | None = None) -> None:
        """Something with a life of its own runs.

        Args:
          inner: its account.
          left: of its tensors those that go on, with the key and the description that they have
            from now on; all others die with it.
        """
        if len(inner.bytes):
            np.maximum(self._peak, self._live + inner.tile_peak_bytes, out=self._peak)
        start, number = len(self._steps), len(self._tensors)
        numbers = (inner.bytes + self._total, inner.space, inner.space_tiles)
        columns = (inner.names, inner.origins, *(column.tolist() for column in numbers))
        self._steps.extend(zip(*columns, strict=True))
        self._tensors.extend(inner.tensors)
        self._first.extend((inner.first + start).tolist())
        self._last.extend((inner.last + start).tolist())
        for i, (key, tensor) in (left or {}).items():
            self.drop(key)
            self._alive[key] = number + i
            self._tensors[number + i] = tensor
            self._live += tensor.laid.mapping.bytes_per_tile()
            self._total += tensor.total_bytes

    def result(self) -> Alive:
        """The account."""
        last = np.array(self._last, dtype=np.int64)
        last[list(self._alive.values())] = len(self._steps) - 1
        numbers = np.array([step[2:] for step in self._steps], dtype=np.int64).reshape(-1, 3)
        bytes_, space, space_tiles = numbers.T.copy()
        return Alive(
            tile_peak_bytes=self._peak.copy(),
            names=tuple(step[0] for step in self._steps),
            origins=tuple(step[1] for step in self._steps),
            bytes=bytes_,
            space=space,
            space_tiles=space_tiles,
            tensors=tuple(self._tensors),
            first=np.array(self._first, dtype=np.int64),
            last=last,
            left=dict(self._alive),
        )

    def _begin(self, key: object, tensor: Live) -> None:
        self._alive[key] = len(self._tensors)
        self._tensors.append(tensor)
        self._first.append(len(self._steps))
        self._last.append(-1)

    def _end(self, key: object) -> Live:
        number = self._alive.pop(key)
        self._last[number] = len(self._steps) - 1
        return self._tensors[number]


def account(
    events: Sequence[Event],
    operands: Iterable[int],
    results: Iterable[int],
    tiles: int,
    given_away: Iterable[int] = (),
) -> tuple[Alive, dict[int, int]]:
    """The memory of a kernel, and which operands' memory its results take.

    Args:
      events: its items, in order.
      operands: owners that live outside; their memory is not counted.
      results: owners that live on after the kernel.
      tiles: how many tiles there are.
      given_away: those operands that nobody needs after the kernel; others are never written over.

    Returns:
      What is alive, and for each owner that took over an operand's memory, that operand.
    """
    outside, kept = set(operands), set(results)
    mortal = {owner for event in events for owner in event.births} | set(given_away)
    last = {owner: i for i, event in enumerate(events) for owner in event.reads}
    memory = Memory(tiles)
    taken: dict[int, int] = {}  # from an owner to the one whose memory it has
    for i, event in enumerate(events):
        dying = {o for o in event.reads if last[o] == i and o in mortal and o not in kept}
        for owner, live in event.births.items():
            heir = next((o for o in event.in_place.get(owner, ()) if o in dying), None)
            if heir is None:
                memory.add(owner, live)
                continue
            dying.discard(heir)
            memory.rename(heir, owner, live)
            if heir in outside or heir in taken:
                taken[owner] = taken.get(heir, heir)
        memory.step(event.name, event.origin, event.temporary, event.tiles)
        for inner in event.inner:
            memory.steps(inner)
        unread = {o for o in event.births if o not in last and o not in kept}
        for owner in dying | unread:
            memory.drop(owner)
    return memory.result(), taken


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
        self._known: dict[frozenset[int], tuple[Alive, tuple[int | None, ...]]] = {}

    def giving(self, away: frozenset[int]) -> tuple[Alive, tuple[int | None, ...]]:
        """The memory if nobody needs some operands any more.

        Args:
          away: positions of these operands.

        Returns:
          What is alive, with `results` as keys of what is left, and for each result the operand
          whose memory it has: one that was given away, or the one that it is.
        """
        if away not in self._known:
            given_away = [self._operands[i] for i in away]
            alive, taken = account(
                self._events, self._operands, self.results, self._tiles, given_away
            )
            number = {owner: i for i, owner in enumerate(self._operands)}
            in_place = tuple(number.get(taken.get(owner, owner)) for owner in self.results)
            self._known[away] = alive, in_place
        return self._known[away]
