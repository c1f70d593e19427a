"""The types with which the machine model describes an operation and its cost."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from typing import Any, TypeAlias

from lowering.ground import Superstep, TileNumbers, TileRuns
from lowering.machine.transfers.exchange_code import Pieces, scattered_pieces

Units: TypeAlias = tuple[str, str]
"""The number types of inputs and sums with which the convolution units compute."""


@dc.dataclass(frozen=True)
class Shape:
    """The extents and the element type of a tensor."""

    dims: tuple[int, ...]
    dtype: str

    @functools.cached_property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @functools.cached_property
    def element_bytes(self) -> int:
        """The bytes of one element: one for types of less than eight bits, eight for PRNG keys."""
        if self.dtype.startswith(_UP_TO_A_BYTE):
            return 1
        return _BYTES.get(self.dtype, 4)

    @functools.cached_property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.elements * self.element_bytes

    @functools.cached_property
    def text(self) -> str:
        """The type as text, such as `float16[128,1024]`."""
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


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


@dc.dataclass(frozen=True)
class Operation:
    """One equation, as the cost formulas see it: equal operations have equal costs.

    Attributes:
      name: the primitive's.
      operands: the shapes of its operands.
      results: the shapes of its results.
      params: its parameters, hashable.
      partials: the dtype of sums, if a scope or an option sets it.
      memory_proportion: the share of a tile that a plan may fill, if an option sets it.
      literals: for operations that cost less with some constants, the number that each operand
        is everywhere; None if it is known only at run time.
    """

    name: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    params: tuple[tuple[str, Any], ...] = ()
    partials: str | None = None
    memory_proportion: float | None = None
    literals: tuple[float | None, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        proportion, literals = self.memory_proportion, self.literals
        shapes = self.operands, self.results
        return hash((self.name, *shapes, self.params, self.partials, proportion, literals))

    def param(self, name: str, default: Any = None) -> Any:
        """Returns the value of one parameter, or the default."""
        return dict(self.params).get(name, default)

    @property
    def first_result(self) -> Shape:
        """The first result."""
        return self.results[0]


SUPERSTEP_CYCLES = 276
"""What a superstep of the libraries that waits for an exchange takes beside its formulas.

That is: the supervisor fetches the exchange's code, opens and closes it, and calls the vertices.
Fitted once, over the 40 dense rows of PopSparse together. Calls of that kind measured 288 and 294
cycles on a C600 (docs/hardware.md, Fitted constants). Exchanges that users lay out by hand measured
none of it.
"""


@dc.dataclass(frozen=True, slots=True)
class Phase:
    """One superstep of an operation, as the slowest tile runs it.

    Attributes:
      name: the kind of work, in the original's words ("Convolve", "Reduce", "OnTileCopy", ...).
      compute: cycles of the compute set.
      exchange_bytes: bytes that the busiest tile receives (or sends) before it.
      times: how often it runs, one after the other.
      unrolled: whether each of these times has code of its own; else it is there once.
      receivers: how many tiles receive data, others each time if it is unrolled; None: all may.
      pieces: the pieces of the exchange; None: as many as a linear mapping may have.
      is_by_hand: whether the user has laid it out, tile by tile.
    """

    name: str
    compute: float = 0.0
    exchange_bytes: float = 0.0
    times: int = 1
    unrolled: bool = False
    receivers: int | None = None
    pieces: Pieces | None = None
    is_by_hand: bool = False

    @property
    def waiting_cycles(self) -> int:
        """The cycles that its exchange takes beside the target's own and those of its bytes."""
        return SUPERSTEP_CYCLES if self.exchange_bytes and not self.is_by_hand else 0

    @property
    def exchanged_pieces(self) -> Pieces:
        """The pieces that the busiest tile moves before it."""
        return scattered_pieces(self.exchange_bytes) if self.pieces is None else self.pieces

    @property
    def moves_operands(self) -> bool:
        """True if it moves operands; what a reduction moves is made by the phases before it."""
        return self.name != "Reduce"

    @property
    def code_copies(self) -> int:
        """The number of copies of its code on the tiles."""
        return self.times if self.unrolled else 1


@dc.dataclass(frozen=True, slots=True)
class Vertices:
    """Vertices of one kind: its code is on each tile once, its state once per vertex.

    Attributes:
      kind: the name, with the types that it is compiled for, such as "popops::Add<half>".
      per_tile: how many the busiest tile has.
      tiles: how many tiles have any.
      copies: how many supersteps have as many, of their own.
      where: how many are on each tile, where the user has put them there; None: on so many tiles
        from the first result's first tile on.
    """

    kind: str
    per_tile: int
    tiles: int
    copies: int = 1
    where: TileNumbers | None = None


@dc.dataclass(frozen=True, slots=True)
class WantedLayout:
    """The layout that a plan wants for a tensor: over `used` tiles, in the order `layout`.

    Attributes:
      used: how many tiles hold any.
      layout: the name of the order.
      block: channels and positions that follow each other in that order, see `TileMapping`.
      by_hand: the tiles on which the user has put the elements; None: a plan spreads them evenly.
    """

    used: int
    layout: str
    block: tuple[int, int] | None = None
    by_hand: TileRuns | None = None


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one operation on one IPU.

    Attributes:
      phases: its supersteps, in order.
      repeats: how often they run one after the other (serial splits); their code is there once.
      temporary_bytes: on the busiest tile, beside operands and results, while it runs.
      vertices: the vertices that must be on the tiles for it.
      flops: floating-point operations of all tiles together.
      units: the types of the convolution units that compute it; None if vectors do.
      operands: the layout that each operand must have; None: any layout.
      results: the layout of each result; None: that of the largest operand.
      in_place: whether the result may take the memory of an operand that is not needed any more.
      moves_nothing: whether it only gives data another name or view; nothing runs.
      source: "formula" if the operation has its own, "default" if its kind's stated one was used.
      host_bytes: bytes from or to the host, after the phases.
      remote_bytes: bytes from or to streaming memory, after the phases.
      step: what the user has laid out on tiles, tile by tile; None for all else.
    """

    phases: tuple[Phase, ...] = ()
    repeats: int = 1
    temporary_bytes: float = 0.0
    vertices: tuple[Vertices, ...] = ()
    flops: float = 0.0
    units: Units | None = None
    operands: tuple[WantedLayout | None, ...] = ()
    results: tuple[WantedLayout | None, ...] = ()
    in_place: bool = False
    moves_nothing: bool = False
    source: str = "formula"
    host_bytes: int = 0
    remote_bytes: int = 0
    step: Superstep | None = None

    def cycles_with_exchange(
        self, exchange_bytes_per_cycle: float, exchange: float, sync: float
    ) -> float:
        """Returns the cycles of all phases; a sync and, for data, an exchange come before each.

        Args:
          exchange_bytes_per_cycle: bytes that a tile receives per cycle.
          exchange: fixed cycles of an exchange.
          sync: cycles of a sync.
        """
        total = 0.0
        for phase in self.phases:
            phase_cycles = phase.compute + sync + phase.waiting_cycles
            if phase.exchange_bytes:
                phase_cycles += exchange + phase.exchange_bytes / exchange_bytes_per_cycle
            total += phase_cycles * phase.times
        return total * self.repeats


def name_units(units: Units | None, dtype: str) -> str:
    """Returns the name of the units that compute an operation, as `roofline` lists them.

    Args:
      units: the types of the convolution units, if these compute it.
      dtype: the type of the numbers that vectors hold otherwise.
    """
    if units:
        return "amp_{}_{}".format(*units)
    is_half = dtype.startswith(("float16", "bfloat16", "float8"))
    return "vector_float16" if is_half else "vector_float32"
