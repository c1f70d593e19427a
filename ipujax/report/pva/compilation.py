"""What was compiled: the chip, memory, liveness and the program tree."""

from __future__ import annotations

import bisect
import dataclasses as dc
import enum
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from ipujax.errors import OutOfBoundsError, UnmodelledError
from ipujax.report.checks import check
from ipujax.report.pva.held import CATEGORIES, LoweredVariable, Variable
from ipujax.report.pva.programs import Program, below
from ipujax.report.pva.view import Lazy, View, told
from lowering import machine


class Architecture(enum.Enum):
    """Kinds of IPUs."""

    Ipu1 = "ipu1"
    Ipu2 = "ipu2"
    Ipu21 = "ipu21"


class Target(View):
    """The IPUs of one replica."""

    instead: ClassVar[Mapping[str, str]] = {
        "architecture": "the report is about a chip of its own: see ipu.report.load(path).target"
    }

    @property
    def architecture(self) -> Architecture:
        """The kind of IPU, one of `IPU.Architecture`.

        Raises:
          AttributeError: a chip of its own.
        """
        known = {kind.value: kind for kind in Architecture}
        if self._chip.name not in known:
            raise self.unknown("architecture")
        return known[self._chip.name]

    _chip = told(lambda self: self._held.report.target)
    numIPUs: int = told(lambda self: self._held.report.num_ipus)
    """IPUs of one replica."""
    numReplicas: int = told(lambda self: self._held.report.replication_factor)
    """How many replicas run side by side."""
    tilesPerIpu: int = told(lambda self: self._chip.tiles_per_ipu)
    """Tiles of one IPU."""
    numTiles: int = told(lambda self: self.numIPUs * self.tilesPerIpu)
    """Tiles of all IPUs of one replica."""
    bytesPerTile: int = told(lambda self: self._chip.bytes_per_tile)
    """Memory of one tile."""
    bytesPerIPU: int = told(lambda self: self.tilesPerIpu * self.bytesPerTile)
    """Memory of one IPU's tiles."""
    totalMemory: int = told(lambda self: self.numTiles * self.bytesPerTile)
    """Memory of the tiles of all IPUs of one replica."""
    clockFrequency: float = told(lambda self: self._chip.clock_hz)
    """Tile cycles per second."""


class MemoryTotal(NamedTuple):
    """Bytes of a tile; the model leaves no gaps."""

    includingGaps: int
    excludingGaps: int


class CategoryTotal(NamedTuple):
    """Bytes of one category on a tile."""

    total: int


class Categories(View):
    """What fills a tile at its IPU's worst step, by category.

    pva's `variable` is what the model tells apart as `variables`, `activations`, `fifos` and
    `temporaries`; those names work too.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "globalExchangeCode": "all exchange code is in .internalExchangeCode",
        "hostExchangeCode": "all exchange code is in .internalExchangeCode",
        "vertexFieldData": "all data of vertices is in .vertexInstanceState",
    }

    def __getattr__(self, name: str) -> CategoryTotal:
        known = self._held.report.memory.tile_categories if not name.startswith("_") else {}
        names = CATEGORIES.get(name, (name,) if name in known else ())
        if not names:
            raise self.unknown(name)
        return CategoryTotal(sum(int(known[each][self._place]) for each in names))

    def __dir__(self) -> list[str]:
        return sorted([*CATEGORIES, *self._held.report.memory.tile_categories])


class TileMemory(View):
    """Memory of one tile."""

    _peak = told(lambda self: int(self._held.report.memory.tile_peak_bytes[self._place]))
    total: MemoryTotal = told(lambda self: MemoryTotal(self._peak, self._peak))
    """The most that the tile ever holds."""
    alwaysLiveBytes: int = told(lambda self: int(self._held.always[self._place]))
    """What the tile holds at every step: variables, constants and code."""
    notAlwaysLiveBytes: int = told(lambda self: self._peak - self.alwaysLiveBytes)
    """The most that there ever is beside."""
    category: Categories = told(lambda self: Categories(self._held, *self._place))
    """What fills it."""


class Tile(View):
    """A tile of one of the IPUs."""

    id: int = told(lambda self: self._place[0])
    """Counted over all IPUs."""
    ipu: int = told(lambda self: self._held.place(self.id)[0])
    """The IPU that it is of."""
    memory: TileMemory = told(lambda self: TileMemory(self._held, *self._held.place(self.id)))
    """What it holds."""


@check.guard
class IPU(View):
    """An IPU of one replica."""

    Architecture: ClassVar[type[Architecture]] = Architecture

    id: int = told(lambda self: self._place[0])
    """Counted from 0."""

    @property
    def tiles(self) -> Lazy[int, Tile]:
        """Its tiles."""
        count = self._held.report.target.tiles_per_ipu
        first = self.id * count
        return Lazy(range(count), lambda tile: Tile(self._held, first + tile), "tile")


@dc.dataclass(frozen=True)
class VertexType:
    """A kind of vertex, and how many there are."""

    name: str
    count: int


class Graph(View):
    """Sizes of the graph, all IPUs of one replica together.

    Each tile that has any vertices of an operation counts as having as many as the one that has
    most. What is run again, or outlined, is there once.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "numConstraints": "it lays tensors by rules: use numVars",
    }

    @property
    def _sizes(self) -> machine.Graph:
        known = self._held.report.graph
        if known is None:
            raise UnmodelledError(
                "this report is of an ipujax that did not count compute sets and vertices",
                fix="write it again with report.to_json(path)",
            )
        return known

    numComputeSets: int = told(lambda self: self._sizes.compute_sets)
    """Supersteps that compute."""
    numVertices: int = told(lambda self: sum(self._sizes.vertices.values()))
    """Vertices of all kinds."""
    numEdges: int = told(lambda self: self._sizes.edges)
    """One for each operand and result of each vertex; Poplar's, one for each region, are more."""
    numVars: int = told(lambda self: len(self._held.tensors))
    """Tensors that tiles ever hold; one on several IPUs is there several times."""

    @property
    def vertexTypes(self) -> list[VertexType]:
        """The kinds of vertices, most first."""
        return [VertexType(*kind) for kind in self._sizes.vertices.items()]


@dc.dataclass(frozen=True)
class StepProgram:
    """What runs at a step.

    Attributes:
      name: of the operation.
      origin: the user's `file:line`, or "".
    """

    name: str
    origin: str


class LiveMemory(View):
    """What is there at a step and not always; nothing where no step is told."""

    def _of(self, sizes: str) -> int:
        if not self._place:
            return 0
        ipu, step = self._place
        return int(getattr(self._held.report.liveness[ipu], sizes)[step])

    bytes: int = told(lambda self: self._of("bytes"))
    """On all tiles together, work space included."""
    temporaryBytes: int = told(lambda self: self._of("temporary_bytes"))
    """The work space among them; ipujax's own."""

    @property
    def variables(self) -> list[Variable]:
        """The tensors among them, largest first."""
        if not self._place:
            return []
        ipu, step = self._place
        alive = self._held.report.liveness[ipu].alive_at(step)
        return [Variable(t.name, t.total_bytes, t.origin) for t in alive if t.first is not None]


class LivenessProgramStep(View):
    """A step of one IPU; it holds nothing on the others."""

    instead: ClassVar[Mapping[str, str]] = {
        "notAlwaysLiveMemoryForTile": "the model knows work space for all tiles together: use "
        "notAlwaysLiveMemoryForIpu(ipu), or report.compilation.tiles[i].memory for the worst step"
    }

    ipu: int = told(lambda self: self._place[0])
    """The IPU whose step it is."""
    notAlwaysLiveMemory: LiveMemory = told(lambda self: LiveMemory(self._held, *self._place))
    """What is there at this step and not always."""

    @property
    def program(self) -> StepProgram:
        """What runs then."""
        ipu, step = self._place
        held = self._held.report.liveness[ipu]
        return StepProgram(held.names[step], held.origins[step])

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> LiveMemory:
        """The same on one IPU: nothing on others than that of the step.

        Raises:
          IndexError: an IPU that the replica does not have.
        """
        count = len(self._held.report.liveness)
        if not 0 <= ipu < count:
            raise OutOfBoundsError(
                f"there is no IPU {ipu}: the replica has {count}, counted from 0"
            )
        return self.notAlwaysLiveMemory if ipu == self.ipu else LiveMemory(self._held)


class LoweredVariables(View):
    """Tensors by tile."""

    allBriefVars: list[LoweredVariable] = told(lambda self: list(self._held.lowered()))
    """Every tensor on every tile that has any of it: many."""

    def forTile(self, tile: int) -> list[LoweredVariable]:
        """Those on one tile, counted over all IPUs."""
        return list(self._held.lowered(tile))


@check.guard
class CompilationReport(View):
    """One replica's program."""

    target: Target = told(lambda self: Target(self._held))
    """What it was compiled for."""
    graph: Graph = told(lambda self: Graph(self._held))
    """How large it is."""
    ipus: Lazy[int, IPU] = told(lambda self: self._each(self.target.numIPUs, IPU, "IPU"))
    """The IPUs."""
    tiles: Lazy[int, Tile] = told(lambda self: self._each(self.target.numTiles, Tile, "tile"))
    """The tiles of all IPUs."""
    alwaysLiveVariables: list[Variable] = told(lambda self: list(self._held.always_live()))
    """What is there at every step; code is among it under its category's name."""
    loweredVariables: LoweredVariables = told(lambda self: LoweredVariables(self._held))
    """Tensors by tile, with their lifetimes."""
    programs: list[Program] = told(lambda self: list(below(self._held.report.program)))
    """All parts of the program tree, each once, the whole program first."""

    def _each(self, count: int, view: type[View], what: str) -> Lazy[int, View]:
        return Lazy(range(count), lambda i: view(self._held, i), what)

    @property
    def livenessProgramSteps(self) -> Lazy[int, LivenessProgramStep]:
        """The steps of IPU 0, then those of IPU 1 and so on; bodies of loops are there once."""
        first = self._held.first_step

        def step(i: int) -> LivenessProgramStep:
            ipu = bisect.bisect_right(first, i) - 1
            return LivenessProgramStep(self._held, ipu, i - first[ipu])

        return Lazy(range(first[-1]), step, "step")

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """The same on one tile, counted over all IPUs."""
        return list(self._held.always_live(tile))
