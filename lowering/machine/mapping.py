"""Which tile holds which elements of a tensor.

A mapping cuts the flattened tensor into equal contiguous pieces of whole grains, one per tile from
`first_tile` on, wrapping around. What "flattened" means is the layout's business: linear mappings
take the tensor's own order, those that a matmul or convolution plan asks for take the plan's.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

VECTOR_BYTES = 8  # poplibs: Target::getVectorWidth, 64 bits
MINIMUM_BYTES = 128  # poplibs: poputil/TileMapping, minimum bytes on a tile that has any


class Piece(NamedTuple):
    """Elements `start` to `stop` (in the layout's order) on one tile."""

    tile: int
    start: int
    stop: int


@dc.dataclass(frozen=True, slots=True)
class TileMapping:
    """Where the elements of one tensor lie on the tiles of its IPU.

    Attributes:
      elements: how many there are.
      element_bytes: the size of one.
      grain: elements that stay together.
      used: how many tiles hold any.
      tiles: how many tiles there are to wrap around.
      first_tile: the tile of the first piece.
      layout: in which order the elements are taken; tensors of different layouts must be
        rearranged before they can be worked on together.
    """

    elements: int
    element_bytes: int
    grain: int
    used: int
    tiles: int
    first_tile: int = 0
    layout: str = "linear"

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        return self.elements * self.element_bytes

    @property
    def most_elements(self) -> int:
        """Elements on the tile that has the most."""
        if not self.used:
            return 0
        grains = -(-self.elements // self.grain)
        most = -(-grains // self.used)
        # The last piece is among the largest, and the only one that can end within a grain.
        if self.used == 1 or grains % self.used == 1:
            return self.elements - (grains - most) * self.grain
        return most * self.grain

    @property
    def most_bytes(self) -> int:
        """Bytes on the tile that has the most."""
        return self.most_elements * self.element_bytes

    def bounds(self) -> np.ndarray:
        """int64 [used + 1]: piece i holds the elements from bounds[i] to bounds[i + 1]."""
        grains = -(-self.elements // self.grain)
        starts = np.arange(self.used + 1, dtype=np.int64) * grains // max(self.used, 1)
        return np.minimum(starts * self.grain, self.elements)

    def pieces(self) -> Iterator[Piece]:
        """What each tile holds, in the order of the elements."""
        bounds = self.bounds().tolist()
        for i in range(self.used):
            yield Piece((self.first_tile + i) % self.tiles, bounds[i], bounds[i + 1])

    def bytes_per_tile(self) -> np.ndarray:
        """int64 [tiles]: the bytes that each tile holds."""
        return _bytes_per_tile(self)

    def moved_to(self, first_tile: int) -> TileMapping:
        """The same pieces from another tile on."""
        return dc.replace(self, first_tile=first_tile % self.tiles)


@functools.lru_cache(maxsize=4096)
def _bytes_per_tile(mapping: TileMapping) -> np.ndarray:
    held = np.zeros(mapping.tiles, dtype=np.int64)
    held[: mapping.used] = np.diff(mapping.bounds()) * mapping.element_bytes
    held = np.roll(held, mapping.first_tile)
    held.flags.writeable = False
    return held


def linear(
    elements: int,
    element_bytes: int,
    tiles: int,
    *,
    minimum_bytes: int = MINIMUM_BYTES,
    grain: int | None = None,
) -> TileMapping:
    """The original's linear mapping (docs/hardware.md, Tile mapping).

    Whole grains, spread as evenly as possible over as many tiles as get `minimum_bytes` each.

    Args:
      elements: of the tensor.
      element_bytes: the size of one.
      tiles: how many tiles there are.
      minimum_bytes: what a tile has at least, if the tensor is large enough.
      grain: elements that stay together; by default what a 64-bit vector holds.
    """
    grain = grain or max(1, VECTOR_BYTES // element_bytes)
    minimum = -(-minimum_bytes // element_bytes)
    grains = -(-elements // grain)
    if not grains:
        return TileMapping(0, element_bytes, grain, 0, tiles)
    fewest = -(-minimum // grain)
    most = max(-(-grains // tiles), -(-grains // max(1, grains // fewest)))
    return TileMapping(elements, element_bytes, grain, -(-grains // most), tiles)


def spread(
    elements: int, element_bytes: int, used: int, tiles: int, *, first_tile: int = 0, layout: str
) -> TileMapping:
    """Elements spread evenly over `used` tiles, as a plan wants its operands.

    Args:
      elements: of the tensor.
      element_bytes: the size of one.
      used: tiles that take part.
      tiles: how many there are.
      first_tile: the first that takes part.
      layout: the plan's name for the order.
    """
    grain = max(1, VECTOR_BYTES // element_bytes)
    used = max(1, min(used, -(-elements // grain))) if elements else 0
    return TileMapping(elements, element_bytes, grain, used, tiles, first_tile % tiles, layout)
