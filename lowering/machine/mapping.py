"""Tile mappings: the tile that holds each element of a tensor.

A mapping cuts the flattened tensor into equal contiguous pieces of whole grains, one per tile from
`first_tile` on, wrapping around. The layout sets the order of the flattened elements: linear
mappings take the tensor's own order, those that a matmul or convolution plan asks for take the
plan's. What the user has put on tiles by hand lies there instead.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lowering.ground import TileRuns

VECTOR_BYTES = 8  # poplibs: Target::getVectorWidth, 64 bits
MINIMUM_BYTES = 128  # poplibs: poputil/TileMapping, minimum bytes on a tile that has any


class Piece(NamedTuple):
    """Elements `start` to `stop` (in the layout's order) on one tile."""

    tile: int
    start: int
    stop: int


@dc.dataclass(frozen=True)
class TileMapping:
    """The mapping of a tensor's elements to the tiles of its IPU.

    Attributes:
      elements: how many there are.
      element_bytes: the size of one.
      grain: elements that stay together.
      used: how many tiles hold any.
      tiles: how many tiles there are to wrap around.
      first_tile: the tile of the first piece.
      layout: the order in which the elements are taken; tensors of different layouts must be
        rearranged before they can be worked on together.
      block: for a plan's order, the channels of a grain, which are innermost, and the positions of
        a tile's part that follow each other; None: all elements lie in the tensor's order.
      by_hand: the tiles on which the user has put the elements; None: the pieces are equal ones.
    """

    elements: int
    element_bytes: int
    grain: int
    used: int
    tiles: int
    first_tile: int = 0
    layout: str = "linear"
    block: tuple[int, int] | None = None
    by_hand: TileRuns | None = None

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        pieces = self.elements, self.element_bytes, self.grain, self.used, self.tiles
        return hash((*pieces, self.first_tile, self.layout, self.block, self.by_hand))

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        return self.elements * self.element_bytes

    @property
    def most_elements(self) -> int:
        """Elements on the tile that has the most."""
        if self.by_hand is not None:
            return self.bytes_per_tile().max(initial=0) // self.element_bytes
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

    def bytes_together_in(self, other: TileMapping) -> int:
        """Returns how many bytes lie together on a tile in this mapping and in another's order."""
        channels, positions = self.block or (self.most_elements, 1)
        other_channels, other_positions = other.block or (other.most_elements, 1)
        together = min(channels, other_channels) * min(positions, other_positions)
        return self.element_bytes * max(1, min(together, self.most_elements, other.most_elements))

    def bounds(self) -> np.ndarray:
        """Returns int64 [used + 1]: piece i holds the elements from bounds[i] to bounds[i + 1]."""
        grains = -(-self.elements // self.grain)
        starts = np.arange(self.used + 1, dtype=np.int64) * grains // max(self.used, 1)
        return np.minimum(starts * self.grain, self.elements)

    def pieces(self) -> Iterator[Piece]:
        """Yields the elements on each tile, in the order of the elements."""
        if self.by_hand is not None:
            start = 0
            for tile, stop in self.by_hand.array.T.tolist():
                yield Piece(tile, start, stop)
                start = stop
            return
        bounds = self.bounds().tolist()
        for i in range(self.used):
            yield Piece((self.first_tile + i) % self.tiles, bounds[i], bounds[i + 1])

    def bytes_per_tile(self) -> np.ndarray:
        """Returns int64 [tiles]: the bytes that each tile holds."""
        return self._bytes_per_tile

    @functools.cached_property  # equal mappings share the array; each finds its own at once
    def _bytes_per_tile(self) -> np.ndarray:
        return _count_bytes_per_tile(self)

    def start_at_tile(self, first_tile: int) -> TileMapping:
        """Returns the same pieces, beginning at another tile."""
        return self.begin_at(first_tile % self.tiles)

    def begin_at(self, first_tile: int) -> TileMapping:
        """Returns the same pieces, beginning at a tile or, below 0, at a stand-in for one."""
        return TileMapping(
            self.elements,
            self.element_bytes,
            self.grain,
            self.used,
            self.tiles,
            first_tile,
            self.layout,
            self.block,
            self.by_hand,
        )


@functools.lru_cache(maxsize=4096)
def _count_bytes_per_tile(mapping: TileMapping) -> np.ndarray:
    if mapping.by_hand is not None:
        tile_bytes = mapping.by_hand.elements_on_tiles(mapping.tiles) * mapping.element_bytes
    elif mapping.first_tile:
        from_first = _count_bytes_per_tile(mapping.begin_at(0))
        wraps_at = -mapping.first_tile % mapping.tiles
        tile_bytes = np.concatenate([from_first[wraps_at:], from_first[:wraps_at]])
    else:
        tile_bytes = np.zeros(mapping.tiles, dtype=np.int64)
        tile_bytes[: mapping.used] = np.diff(mapping.bounds()) * mapping.element_bytes
    tile_bytes.flags.writeable = False
    return tile_bytes


def map_linearly(
    elements: int,
    element_bytes: int,
    tiles: int,
    *,
    minimum_bytes: int = MINIMUM_BYTES,
    grain: int | None = None,
) -> TileMapping:
    """Maps a tensor linearly to tiles, as the original does (docs/hardware.md, Tile mapping).

    Whole grains, spread as evenly as possible over as many tiles as get `minimum_bytes` each.

    Args:
      elements: elements of the tensor.
      element_bytes: the size of one.
      tiles: how many tiles there are.
      minimum_bytes: the least bytes of a tile, if the tensor is large enough.
      grain: elements that stay together; by default those of a 64-bit vector.
    """
    grain = grain or max(1, VECTOR_BYTES // element_bytes)
    minimum = -(-minimum_bytes // element_bytes)
    grains = -(-elements // grain)
    if not grains:
        return TileMapping(0, element_bytes, grain, 0, tiles)
    fewest_grains = -(-minimum // grain)
    grains_per_tile = max(-(-grains // tiles), -(-grains // max(1, grains // fewest_grains)))
    return TileMapping(elements, element_bytes, grain, -(-grains // grains_per_tile), tiles)


def map_evenly(
    elements: int,
    element_bytes: int,
    used: int,
    tiles: int,
    *,
    first_tile: int = 0,
    layout: str,
    block: tuple[int, int] | None = None,
) -> TileMapping:
    """Maps elements evenly to `used` tiles, as a plan wants its operands.

    Args:
      elements: elements of the tensor.
      element_bytes: the size of one.
      used: tiles that take part.
      tiles: how many there are.
      first_tile: the first that takes part.
      layout: the plan's name for the order.
      block: channels and positions that follow each other in it.
    """
    grain = max(1, VECTOR_BYTES // element_bytes)
    used = max(1, min(used, -(-elements // grain))) if elements else 0
    return TileMapping(
        elements, element_bytes, grain, used, tiles, first_tile % tiles, layout, block
    )


def map_by_hand(runs: TileRuns, element_bytes: int, tiles: int) -> TileMapping:
    """Returns the mapping of a tensor that the user has put on tiles.

    Args:
      runs: the tiles of its elements.
      element_bytes: the size of one.
      tiles: how many tiles there are.
    """
    counts = runs.elements_on_tiles(tiles)
    total, used = int(counts.sum()), int(np.count_nonzero(counts))
    return TileMapping(total, element_bytes, 1, used, tiles, by_hand=runs)
