"""What of a kernel's tensors is alive when, and how much memory that takes on each tile."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence

import numpy as np

from lowering.jaxpr import JaxprEqn, user_line
from lowering.machine.kernels.layouts import Laid


@dc.dataclass(frozen=True, slots=True)
class Live:
    """A tensor that is alive at the worst step.

    Attributes:
      name: shape and dtype.
      operation: what makes it.
      made_by: the equation, if one does.
      laid: how it lies.
      category: one of `profile.CATEGORIES`.
      value: its number in the Program; None inside of kernels.
    """

    name: str
    operation: str
    made_by: JaxprEqn | None
    laid: Laid
    category: str = "activations"
    value: int | None = None

    @property
    def origin(self) -> str:
        """The user's `file:line`, or ""."""
        return user_line(self.made_by) if self.made_by is not None else ""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alive:
    """Memory of a kernel beside that of its operands.

    Attributes:
      tile_peak_bytes: int64 [tiles], the most that each tile holds at any step.
      activation_bytes: of tensors, on all tiles together, at the step that needs most.
      temporary_bytes: of work space, at that step.
      tensors: what is alive at that step.
    """

    tile_peak_bytes: np.ndarray
    activation_bytes: int
    temporary_bytes: int
    tensors: tuple[Live, ...]

    @property
    def most_bytes(self) -> int:
        """On all tiles together, at the step that needs most."""
        return self.activation_bytes + self.temporary_bytes


@dc.dataclass(slots=True, eq=False)
class Event:
    """One item of a kernel, as memory sees it.

    Attributes:
      reads: owners of what it reads.
      births: tensors that it makes, by owner.
      temporary: work space on each tile that takes part, in bytes.
      tiles: how many take part.
      inner: what goes on inside it, for a loop.
      in_place: owners of operands whose memory its result takes, if they die here, by result.
    """

    reads: tuple[int, ...]
    births: dict[int, Live]
    temporary: float = 0.0
    tiles: int = 0
    inner: Alive | None = None
    in_place: dict[int, tuple[int, ...]] = dc.field(default_factory=dict[int, tuple[int, ...]])


def worst(lives: Sequence[Alive]) -> Alive:
    """The memory of several things of which one at a time goes on."""
    most = max(lives, key=lambda alive: alive.most_bytes)
    peaks = np.maximum.reduce([alive.tile_peak_bytes for alive in lives])
    return dc.replace(most, tile_peak_bytes=peaks)


class Memory:
    """A running account of one IPU's tiles.

    Args:
      tiles: how many there are.
    """

    def __init__(self, tiles: int) -> None:
        self._tiles = tiles
        self._live = np.zeros(tiles, dtype=np.int64)
        self._peak = np.zeros(tiles, dtype=np.int64)
        self._tensors: dict[object, Live] = {}
        self._bytes = 0
        self._most = (0, 0)
        self._at_most: tuple[Live, ...] = ()

    def add(self, key: object, tensor: Live) -> None:
        """A tensor begins to live; it takes the place of one of the same name."""
        self.drop(key)
        self._tensors[key] = tensor
        self._live += tensor.laid.mapping.bytes_per_tile()
        self._bytes += tensor.laid.mapping.total_bytes

    def drop(self, key: object) -> None:
        """A tensor dies, if it was alive."""
        tensor = self._tensors.pop(key, None)
        if tensor is not None:
            self._live -= tensor.laid.mapping.bytes_per_tile()
            self._bytes -= tensor.laid.mapping.total_bytes

    def rename(self, key: object, new: object) -> None:
        """A tensor goes on under another name."""
        if key in self._tensors:
            self._tensors[new] = self._tensors.pop(key)

    def relabel(self, key: object, category: str) -> None:
        """A tensor counts for another category from now on, if it is alive."""
        if key in self._tensors:
            self._tensors[key] = dc.replace(self._tensors[key], category=category)

    def work(self, temporary: float = 0.0, tiles: int = 0, inner: Alive | None = None) -> None:
        """Something runs: with work space on the first `tiles` tiles, or with a life inside."""
        space = round(temporary)
        extra_bytes, extra_space = 0, space * tiles
        if inner is not None:
            np.maximum(self._peak, self._live + inner.tile_peak_bytes, out=self._peak)
            extra_bytes, extra_space = inner.activation_bytes, inner.temporary_bytes
        elif space:
            used = self._live.copy()
            used[:tiles] += space
            np.maximum(self._peak, used, out=self._peak)
        else:
            np.maximum(self._peak, self._live, out=self._peak)
        if self._bytes + extra_bytes + extra_space > sum(self._most):
            self._most = (self._bytes + extra_bytes, extra_space)
            self._at_most = (*self._tensors.values(), *(inner.tensors if inner else ()))

    def result(self) -> Alive:
        """The account."""
        return Alive(
            tile_peak_bytes=self._peak,
            activation_bytes=self._most[0],
            temporary_bytes=self._most[1],
            tensors=self._at_most,
        )


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
            memory.rename(heir, owner)
            if heir in outside or heir in taken:
                taken[owner] = taken.get(heir, heir)
        memory.work(event.temporary, event.tiles, event.inner)
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
        self._events, self._operands, self._results = events, operands, results
        self._tiles = tiles
        self._known: dict[frozenset[int], tuple[Alive, tuple[int | None, ...]]] = {}

    def giving(self, away: frozenset[int]) -> tuple[Alive, tuple[int | None, ...]]:
        """The memory if nobody needs some operands any more.

        Args:
          away: positions of these operands.

        Returns:
          What is alive, and for each result the operand whose memory it has: one that was given
          away, or the one that it is.
        """
        if away not in self._known:
            given_away = [self._operands[i] for i in away]
            alive, taken = account(
                self._events, self._operands, self._results, self._tiles, given_away
            )
            number = {owner: i for i, owner in enumerate(self._operands)}
            in_place = tuple(number.get(taken.get(owner, owner)) for owner in self._results)
            self._known[away] = alive, in_place
        return self._known[away]
