"""What an operation is, and what it costs: the words that the parts of the machine model share."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any


@dc.dataclass(frozen=True, slots=True)
class Shape:
    """Extents and element type of a tensor."""

    dims: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.dims)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; what has less than eight bits takes one, PRNG keys eight."""
        if self.dtype.startswith(_UP_TO_A_BYTE):
            return 1
        return _BYTES.get(self.dtype, 4)

    @property
    def bytes(self) -> int:
        """Bytes of all its elements."""
        return self.elements * self.element_bytes


_BYTES = {
    "bool": 1,
    "float0": 1,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "uint16": 2,
    "complex64": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex128": 16,
    "key<fry>": 8,
    "key<rbg>": 16,
    "key<urbg>": 16,
}
_UP_TO_A_BYTE = ("float4_", "float6_", "float8_", "int2", "int4", "int8", "uint2", "uint4", "uint8")


@dc.dataclass(frozen=True, slots=True)
class Operation:
    """One equation, as the cost formulas see it: equal operations cost the same.

    Attributes:
      name: the primitive's.
      operands: shapes of what it reads.
      results: shapes of what it writes.
      params: its parameters, hashable.
      partials: the dtype that sums are kept in, where a scope or an option says so.
      memory_proportion: the share of a tile that a plan may fill, where an option says so.
      literals: of operations that cost less with some constants, the number that each operand is
        everywhere; None for what only running tells.
    """

    name: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    params: tuple[tuple[str, Any], ...] = ()
    partials: str | None = None
    memory_proportion: float | None = None
    literals: tuple[float | None, ...] = ()

    def param(self, name: str, default: Any = None) -> Any:
        """One parameter."""
        return dict(self.params).get(name, default)

    @property
    def result(self) -> Shape:
        """The first result."""
        return self.results[0]


@dc.dataclass(frozen=True, slots=True)
class Phase:
    """One superstep's share of an operation, on the slowest tile.

    Attributes:
      name: what happens, in the original's words ("Convolve", "Reduce", "OnTileCopy", ...).
      compute: cycles of the compute set.
      exchange_bytes: bytes that the busiest tile receives (or sends) before it.
      times: how often it runs, one after the other.
      unrolled: whether each of these times has code of its own; else it is there once.
      receivers: how many tiles receive data, others each time if it is unrolled; None: all may.
    """

    name: str
    compute: float = 0.0
    exchange_bytes: float = 0.0
    times: int = 1
    unrolled: bool = False
    receivers: int | None = None

    @property
    def copies(self) -> int:
        """How often its code is there."""
        return self.times if self.unrolled else 1


@dc.dataclass(frozen=True, slots=True)
class Vertices:
    """Vertices of one kind: its code is on each tile once, its state once per vertex.

    Attributes:
      kind: the name, with the types that it is compiled for, such as "popops::Add<half>".
      per_tile: how many the busiest tile has.
      tiles: how many tiles have any.
      copies: how many supersteps have as many, of their own.
    """

    kind: str
    per_tile: int
    tiles: int
    copies: int = 1


@dc.dataclass(frozen=True, slots=True)
class Wanted:
    """How a plan wants a tensor laid out: evenly over `used` tiles, in the order `layout`."""

    used: int
    layout: str


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one operation costs on one IPU.

    Attributes:
      phases: its supersteps, in order.
      repeats: how often they run one after the other (serial splits); their code is there once.
      temporary_bytes: on the busiest tile, beside operands and results, while it runs.
      vertices: what must be on the tiles for it.
      flops: floating-point operations of all tiles together.
      operands: how each operand is wanted; None: as it lies.
      results: how each result is left; None: as the largest operand lies.
      in_place: whether the result may take the place of an operand that nobody needs any more.
      moves_nothing: whether it only gives data another name or view; nothing runs.
      source: "formula" if the operation has its own, "default" if its kind's stated one was used.
    """

    phases: tuple[Phase, ...] = ()
    repeats: int = 1
    temporary_bytes: float = 0.0
    vertices: tuple[Vertices, ...] = ()
    flops: float = 0.0
    operands: tuple[Wanted | None, ...] = ()
    results: tuple[Wanted | None, ...] = ()
    in_place: bool = False
    moves_nothing: bool = False
    source: str = "formula"

    def cycles(self, exchange_bytes_per_cycle: float, exchange: float, sync: float) -> float:
        """Cycles of all phases, with a sync and an exchange before each that receives data.

        Args:
          exchange_bytes_per_cycle: bytes that a tile receives per cycle.
          exchange: fixed cycles of an exchange.
          sync: cycles of a sync.
        """
        total = 0.0
        for phase in self.phases:
            once = phase.compute + sync
            if phase.exchange_bytes:
                once += exchange + phase.exchange_bytes / exchange_bytes_per_cycle
            total += once * phase.times
        return total * self.repeats
