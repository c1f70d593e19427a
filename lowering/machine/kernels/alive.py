"""What of a kernel's tensors is alive when, and how much memory that takes on each tile."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping

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
      operations: the number of the operation that each is, or None.
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
    operations: tuple[int | None, ...]
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
        # In the order of `Alive`.
        self._steps: list[tuple[str, str, int | None, int, int, int]] = []

    def add(self, key: object, tensor: Live) -> None:
        """A tensor begins to live; it takes the place of one of the same name."""
        self.drop(key)
        self._begin(key, tensor)
        self._live += tensor.laid.mapping.bytes_per_tile()
        self._total += tensor.total_bytes

    def drop(self, key: object) -> Live | None:
        """A tensor dies, if it was alive."""
        if key not in self._alive:
            return None
        tensor = self._end(key)
        self._live -= tensor.laid.mapping.bytes_per_tile()
        self._total -= tensor.total_bytes
        return tensor

    def rename(self, key: object, new: object, tensor: Live) -> None:
        """Another tensor takes over the memory of one, if that was alive.

        The memory of a variable stays a variable's, called as it was unless what it then holds has
        a name of its own.
        """
        if key not in self._alive:
            return
        old = self._end(key)
        tensor = dc.replace(tensor, laid=old.laid)
        if old.category == "variables":
            tensor = dc.replace(tensor, category="variables", path=tensor.path or old.path)
        self._begin(new, tensor)

    def step(
        self,
        name: str,
        origin: str = "",
        temporary: float = 0.0,
        tiles: int = 0,
        operation: int | None = None,
    ) -> None:
        """Something runs, with work space on the first `tiles` tiles."""
        space = round(temporary)
        self._steps.append((name, origin, operation, self._total + space * tiles, space, tiles))
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
        called = inner.names, inner.origins, inner.operations
        columns = (*called, *(column.tolist() for column in numbers))
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
        numbers = np.array([step[3:] for step in self._steps], dtype=np.int64).reshape(-1, 3)
        bytes_, space, space_tiles = numbers.T.copy()
        return Alive(
            tile_peak_bytes=self._peak.copy(),
            names=tuple(step[0] for step in self._steps),
            origins=tuple(step[1] for step in self._steps),
            operations=tuple(step[2] for step in self._steps),
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
