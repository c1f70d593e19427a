"""Supersteps: the cost, tile by tile, of a compute set or copy that the user lays out."""

from __future__ import annotations

import dataclasses as dc

import numpy as np


@dc.dataclass(frozen=True, slots=True, repr=False)
class TileNumbers:
    """A whole number for each tile, as data that can be hashed and compared.

    Attributes:
      data: the bytes of int64 [tiles]; tiles behind them have 0.
    """

    data: bytes = b""

    @classmethod
    def from_array(cls, numbers: np.ndarray) -> TileNumbers:
        """Returns the numbers of an array [tiles]."""
        return cls(np.asarray(numbers, np.int64).tobytes())

    @property
    def array(self) -> np.ndarray:
        """The numbers as an array, int64."""
        return np.frombuffer(self.data, np.int64)

    def on_tiles(self, tiles: int) -> np.ndarray:
        """Returns the numbers of the first tiles, int64 [tiles], padded with 0."""
        padded = np.zeros(tiles, np.int64)
        padded[: self.array.size] = self.array[:tiles]
        return padded

    def on_ipu(self, ipu: int, tiles: int) -> np.ndarray:
        """Returns the numbers of the tiles of an IPU, int64 [tiles].

        Args:
          ipu: the IPU; it does not count where there are numbers for one IPU's tiles alone.
          tiles: the tiles of each IPU.
        """
        if self.array.size <= tiles:
            return self.on_tiles(tiles)
        return TileNumbers.from_array(self.array[ipu * tiles :][:tiles]).on_tiles(tiles)

    @property
    def most(self) -> int:
        """The largest number."""
        return int(self.array.max(initial=0))

    def __repr__(self) -> str:
        return f"<at most {self.most} on {np.count_nonzero(self.array)} tiles>"


@dc.dataclass(frozen=True, slots=True, repr=False)
class TileRuns:
    """The tile of each element of a variable, as data that can be hashed and compared.

    Attributes:
      data: the bytes of int64 [2, runs]: the tile of each run of elements, and where the run ends.
    """

    data: bytes

    @classmethod
    def from_tiles(cls, tiles: np.ndarray) -> TileRuns:
        """Returns the runs of elements on the tiles of an array [elements]."""
        ends = np.append(np.flatnonzero(np.diff(tiles)) + 1, tiles.size)[: tiles.size]
        return cls(np.stack([tiles[ends - 1], ends]).astype(np.int64).tobytes())

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> TileRuns:
        """Returns the runs of so many elements on each tile, one tile after the other."""
        used_tiles = np.flatnonzero(counts)
        return cls(np.stack([used_tiles, np.cumsum(counts[used_tiles])]).astype(np.int64).tobytes())

    @property
    def array(self) -> np.ndarray:
        """int64 [2, runs]: the tile of each run, and the number of the element behind its last."""
        return np.frombuffer(self.data, np.int64).reshape(2, -1)

    @property
    def tiles(self) -> int:
        """The number of tiles up to the last one that is used."""
        return int(self.array[0].max(initial=-1)) + 1

    def elements_on_tiles(self, tiles: int) -> np.ndarray:
        """Returns int64 [tiles]: how many elements each tile holds."""
        run_tiles, ends = self.array
        counts = np.zeros(tiles, np.int64)
        np.add.at(counts, run_tiles, np.diff(ends, prepend=0))
        return counts

    def __repr__(self) -> str:
        return f"<{self.array.shape[1]} runs of elements on tiles>"


@dc.dataclass(frozen=True, slots=True)
class Placement:
    """The tiles to which the user has mapped a variable.

    Attributes:
      name: the user's name of the variable.
      runs: the tiles of its elements.
    """

    name: str
    runs: TileRuns


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class BetweenIpus:
    """The bytes that a superstep moves between IPUs, before and after its vertices run.

    Attributes:
      ipus: how many IPUs there are.
      flows: the IPU that sends, the one that receives, and bytes, those for several tiles once.
      received: bytes that come from tiles of other IPUs.
      sent: bytes that go to tiles of other IPUs, those for several tiles once.
      copies: bytes of them that the vertices' tiles hold as copies.
    """

    ipus: int
    flows: tuple[tuple[int, int, int], ...]
    received: TileNumbers
    sent: TileNumbers
    copies: TileNumbers


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Superstep:
    """One run of a compute set or a copy on the tiles of one IPU, or of several.

    The tiles of several are numbered through, and then have a number each.

    Attributes:
      name: the user's name for it.
      kind: the vertices' type, or "" for a copy, which computes nothing.
      vertices: how many there are.
      tile_cycles: cycles of the vertices alone.
      received: bytes that come from other tiles before the vertices run.
      sent: bytes that go to other tiles then, those for several tiles once.
      results_received: bytes that come from other tiles after the vertices have run.
      results_sent: bytes that go to other tiles then.
      between_ipus: bytes that move between IPUs, apart from the four above; None for one IPU.
      flops: floating-point operations of all vertices.
      host_bytes: bytes from or to the host.
      remote_bytes: bytes from or to streaming memory.
      is_estimated: whether the vertices' cycles are the default estimate.
      where: the user's `file:line`, or "" for where it is traced.
      operand_places: where the user has mapped each operand; None for one that may lie anywhere.
      result_places: the same for each result.
    """

    name: str
    kind: str = ""
    vertices: TileNumbers = TileNumbers()
    tile_cycles: TileNumbers = TileNumbers()
    received: TileNumbers = TileNumbers()
    sent: TileNumbers = TileNumbers()
    results_received: TileNumbers = TileNumbers()
    results_sent: TileNumbers = TileNumbers()
    between_ipus: BetweenIpus | None = None
    flops: int = 0
    host_bytes: int = 0
    remote_bytes: int = 0
    is_estimated: bool = False
    where: str = ""
    operand_places: tuple[Placement | None, ...] = ()
    result_places: tuple[Placement | None, ...] = ()

    @property
    def operand_bytes(self) -> int:
        """Bytes of the tile that receives, or sends, most before the vertices run."""
        return max(self.received.most, self.sent.most)

    @property
    def result_bytes(self) -> int:
        """Bytes of the tile that receives, or sends, most after the vertices have run."""
        return max(self.results_received.most, self.results_sent.most)

    def temporaries(self, tiles: int) -> np.ndarray:
        """Returns int64 [tiles]: copies of remote operands and results on the vertices' tiles."""
        if not self.kind:
            return np.zeros(tiles, np.int64)
        copies = self.received.on_tiles(tiles) + self.results_sent.on_tiles(tiles)
        if self.between_ipus is not None:
            copies += self.between_ipus.copies.on_tiles(tiles)
        return copies
