"""The memory contents of a report by step and tile, computed once for all views of it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipujax.ground import OutOfBoundsError

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
"""pva's names of the categories, and the model's categories that each one sums."""

_ALWAYS = [(name, category) for name, (category, *more) in CATEGORIES.items() if not more][1:]
"""The categories of code and its data, which are live at every step."""


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
    """The steps at which a tensor is live."""

    id: int
    steps: tuple[Interval, ...]


class LoweredVariable(NamedTuple):
    """A tensor on one tile.

    Attributes:
      id: the tensor's, the same on all its tiles.
      name: shape and dtype.
      bytes: on this tile.
      tileId: the tile, counted over all IPUs.
      equivalenceClass: the steps at which it is live.
    """

    id: int
    name: str
    bytes: int
    tileId: int
    equivalenceClass: EquivalenceClass

    @property
    def size(self) -> int:
        """The bytes on this tile, as `bytes`."""
        return self.bytes


class MemoryContents:
    """The tensors and bytes of a report by step and tile, computed once for all its views."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @functools.cached_property
    def tensors(self) -> list[tuple[int, machine.Lifetime]]:
        """The tensors, each with its IPU."""
        liveness_of_ipu = enumerate(self.report.liveness)
        return [(ipu, tensor) for ipu, liveness in liveness_of_ipu for tensor in liveness.tensors]

    @functools.cached_property
    def first_step_of_ipu(self) -> list[int]:
        """The first step of each IPU in `livenessProgramSteps`, and the number of all steps."""
        counts = [len(liveness.bytes) for liveness in self.report.liveness]
        return np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()

    @functools.cached_property
    def always_live_bytes_of_tile(self) -> np.ndarray:
        """The bytes that are live at every step, int64 [ipus, tiles]."""
        memory = self.report.memory
        total = np.zeros_like(memory.tile_peak_bytes)
        for _, category in _ALWAYS:
            total += memory.tile_categories[category]
        for ipu, tensor in self.tensors:
            if tensor.first is None:
                tensor_bytes = tensor.mapping.bytes_per_tile()
                total[ipu, : len(tensor_bytes)] += tensor_bytes
        return total

    def list_always_live_variables(self, tile: int | None = None) -> Iterator[Variable]:
        """Yields tensors and code that are live at every step, on all tiles or on one."""
        ipu, tile_of_ipu = (None, None) if tile is None else self.split_tile_id(tile)
        for tensor_ipu, tensor in self.tensors:
            if tensor.first is None and ipu in (None, tensor_ipu):
                size = _bytes_of_tensor(tensor, tile_of_ipu)
                if size:
                    yield Variable(tensor.name, size, tensor.origin)
        for name, category in _ALWAYS:
            category_bytes = self.report.memory.tile_categories[category]
            size = int(
                category_bytes.sum() if tile_of_ipu is None else category_bytes[ipu, tile_of_ipu]
            )
            if size:
                yield Variable(name, size)

    def list_lowered_variables(self, tile: int | None = None) -> Iterator[LoweredVariable]:
        """Yields every tensor on every tile that has any of it, or on one tile."""
        tiles = self.report.target.tiles_per_ipu
        ipu, tile_of_ipu = (None, None) if tile is None else self.split_tile_id(tile)
        for number, (tensor_ipu, tensor) in enumerate(self.tensors):
            if ipu not in (None, tensor_ipu):
                continue
            tensor_bytes = tensor.mapping.bytes_per_tile()
            lifetime = EquivalenceClass(number, (self._interval_of_lifetime(tensor_ipu, tensor),))
            for i in (
                np.flatnonzero(tensor_bytes).tolist() if tile_of_ipu is None else [tile_of_ipu]
            ):
                if i < len(tensor_bytes) and tensor_bytes[i]:
                    tile_id = tensor_ipu * tiles + i
                    yield LoweredVariable(
                        number, tensor.name, int(tensor_bytes[i]), tile_id, lifetime
                    )

    def split_tile_id(self, tile: int) -> tuple[int, int]:
        """Returns the IPU of a tile that is counted over all IPUs, and its number there.

        Raises:
          IndexError: a tile that no IPU has.
        """
        shape = self.report.memory.tile_peak_bytes.shape
        if not 0 <= tile < shape[0] * shape[1]:
            raise OutOfBoundsError(f"tile {tile} of {shape[0] * shape[1]}")
        return divmod(tile, shape[1])

    def _interval_of_lifetime(self, ipu: int, tensor: machine.Lifetime) -> Interval:
        begin = self.first_step_of_ipu[ipu]
        if tensor.first is None or tensor.last is None:
            return Interval(begin, self.first_step_of_ipu[ipu + 1])
        return Interval(begin + tensor.first, begin + tensor.last + 1)


def _bytes_of_tensor(tensor: machine.Lifetime, tile: int | None) -> int:
    if tile is None:
        return tensor.total_bytes
    tensor_bytes = tensor.mapping.bytes_per_tile()
    return int(tensor_bytes[tile]) if tile < len(tensor_bytes) else 0
