"""What a report holds where and when, found once for all views of it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipujax.errors import OutOfBoundsError

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from lowering import machine

CATEGORIES = {
    "constant": ("constants",),
    "variable": ("variables", "activations", "fifos", "temporaries"),
    "vertexCode": ("vertex_code",),
    "vertexInstanceState": ("vertex_state",),
    "controlCode": ("control_code",),
    "internalExchangeCode": ("exchange_code",),
    "stack": ("stack",),
}
"""What pva called the categories of the model."""

_ALWAYS = [(name, category) for name, (category, *more) in CATEGORIES.items() if not more][1:]
"""Code and what goes with it, which is there at every step."""


@dc.dataclass(frozen=True)
class Variable:
    """A tensor, or a kind of code, and how much of it there is.

    Attributes:
      name: shape and dtype, or the category of code.
      size: bytes, on all tiles or on the one that was asked for.
      origin: the user's `file:line`, or "".
    """

    name: str
    size: int
    origin: str = ""


class Interval(NamedTuple):
    """Steps of `livenessProgramSteps` from `start` to, and without, `end`."""

    start: int
    end: int


class EquivalenceClass(NamedTuple):
    """When a tensor is there."""

    id: int
    steps: tuple[Interval, ...]


class LoweredVariable(NamedTuple):
    """A tensor on one tile.

    Attributes:
      id: the tensor's, the same on all its tiles.
      name: shape and dtype.
      bytes: on this tile.
      tileId: the tile, counted over all IPUs.
      equivalenceClass: when it is there.
    """

    id: int
    name: str
    bytes: int
    tileId: int
    equivalenceClass: EquivalenceClass

    @property
    def size(self) -> int:
        """The same as `bytes`."""
        return self.bytes


class Held:
    """What is held where and when, found once for all views of a report."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @functools.cached_property
    def tensors(self) -> list[tuple[int, machine.Lifetime]]:
        """Every tensor with its IPU."""
        lives = enumerate(self.report.liveness)
        return [(ipu, tensor) for ipu, held in lives for tensor in held.tensors]

    @functools.cached_property
    def first_step(self) -> list[int]:
        """For each IPU, where its steps begin in `livenessProgramSteps`; and how many there are."""
        counts = [len(held.bytes) for held in self.report.liveness]
        return np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()

    @functools.cached_property
    def always(self) -> np.ndarray:
        """int64 [ipus, tiles]: bytes that are there at every step."""
        memory = self.report.memory
        total = np.zeros_like(memory.tile_peak_bytes)
        for _, category in _ALWAYS:
            total += memory.tile_categories[category]
        for ipu, tensor in self.tensors:
            if tensor.first is None:
                held = tensor.mapping.bytes_per_tile()
                total[ipu, : len(held)] += held
        return total

    def always_live(self, tile: int | None = None) -> Iterator[Variable]:
        """What is there at every step, code included, on all tiles or on one; no empty ones."""
        ipu, own = (None, None) if tile is None else self.place(tile)
        for where, tensor in self.tensors:
            if tensor.first is None and ipu in (None, where):
                size = _size(tensor, own)
                if size:
                    yield Variable(tensor.name, size, tensor.origin)
        for name, category in _ALWAYS:
            held = self.report.memory.tile_categories[category]
            size = int(held.sum() if own is None else held[ipu, own])
            if size:
                yield Variable(name, size)

    def lowered(self, tile: int | None = None) -> Iterator[LoweredVariable]:
        """Every tensor on every tile that has any of it, or on one."""
        tiles = self.report.target.tiles_per_ipu
        ipu, own = (None, None) if tile is None else self.place(tile)
        for number, (where, tensor) in enumerate(self.tensors):
            if ipu not in (None, where):
                continue
            held = tensor.mapping.bytes_per_tile()
            lifetime = EquivalenceClass(number, (self._interval(where, tensor),))
            for i in np.flatnonzero(held).tolist() if own is None else [own]:
                if i < len(held) and held[i]:
                    at = where * tiles + i
                    yield LoweredVariable(number, tensor.name, int(held[i]), at, lifetime)

    def place(self, tile: int) -> tuple[int, int]:
        """The IPU of a tile, and the tile's number there.

        Raises:
          IndexError: a tile that no IPU has.
        """
        shape = self.report.memory.tile_peak_bytes.shape
        if not 0 <= tile < shape[0] * shape[1]:
            raise OutOfBoundsError(f"tile {tile} of {shape[0] * shape[1]}")
        return divmod(tile, shape[1])

    def _interval(self, ipu: int, tensor: machine.Lifetime) -> Interval:
        begin = self.first_step[ipu]
        if tensor.first is None or tensor.last is None:
            return Interval(begin, self.first_step[ipu + 1])
        return Interval(begin + tensor.first, begin + tensor.last + 1)


def _size(tensor: machine.Lifetime, tile: int | None) -> int:
    if tile is None:
        return tensor.total_bytes
    held = tensor.mapping.bytes_per_tile()
    return int(held[tile]) if tile < len(held) else 0
