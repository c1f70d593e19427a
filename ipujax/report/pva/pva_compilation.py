"""The views of a compilation: the chip, memory, liveness and the program tree."""

from __future__ import annotations

import bisect
import dataclasses as dc
import enum
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from ipujax.ground import OutOfBoundsError, UnmodelledError
from ipujax.report.pva.memory_contents import CATEGORIES, LoweredVariable, Variable
from ipujax.report.pva.pva_programs import Program, walk_programs
from ipujax.report.pva.view import Lazy, View, view_property
from ipujax.report.report_checks import check
from lowering import machine


class Architecture(enum.Enum):
    """The kinds of IPUs."""

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
        architecture_of_name = {kind.value: kind for kind in Architecture}
        if self._chip.name not in architecture_of_name:
            raise self.make_unmodelled_error("architecture")
        return architecture_of_name[self._chip.name]

    _chip = view_property(lambda self: self._held.report.target)
    numIPUs: int = view_property(lambda self: self._held.report.num_ipus)
    """IPUs of one replica."""
    numReplicas: int = view_property(lambda self: self._held.report.replication_factor)
    """How many replicas run side by side."""
    tilesPerIpu: int = view_property(lambda self: self._chip.tiles_per_ipu)
    """Tiles of one IPU."""
    numTiles: int = view_property(lambda self: self.numIPUs * self.tilesPerIpu)
    """Tiles of all IPUs of one replica."""
    bytesPerTile: int = view_property(lambda self: self._chip.bytes_per_tile)
    """Memory of one tile."""
    bytesPerIPU: int = view_property(lambda self: self.tilesPerIpu * self.bytesPerTile)
    """Memory of one IPU's tiles."""
    totalMemory: int = view_property(lambda self: self.numTiles * self.bytesPerTile)
    """Memory of the tiles of all IPUs of one replica."""
    clockFrequency: float = view_property(lambda self: self._chip.clock_hz)
    """Tile cycles per second."""


class MemoryTotal(NamedTuple):
    """Bytes of a tile; the model leaves no gaps."""

    includingGaps: int
    excludingGaps: int


class CategoryTotal(NamedTuple):
    """Bytes of one category on a tile."""

    total: int


class Categories(View):
    """The bytes on a tile at its IPU's worst step, by category.

    pva's `variable` is the sum of the model's `variables`, `activations`, `fifos` and
    `temporaries`; those names work too.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "globalExchangeCode": "all exchange code is in .internalExchangeCode",
        "hostExchangeCode": "all exchange code is in .internalExchangeCode",
        "vertexFieldData": "all data of vertices is in .vertexInstanceState",
    }

    def __getattr__(self, name: str) -> CategoryTotal:
        tile_categories = (
            self._held.report.memory.tile_categories if not name.startswith("_") else {}
        )
        names = CATEGORIES.get(name, (name,) if name in tile_categories else ())
        if not names:
            raise self.make_unmodelled_error(name)
        return CategoryTotal(sum(int(tile_categories[category][self._place]) for category in names))

    def __dir__(self) -> list[str]:
        return sorted([*CATEGORIES, *self._held.report.memory.tile_categories])


class TileMemory(View):
    """Memory of one tile."""

    _peak = view_property(lambda self: int(self._held.report.memory.tile_peak_bytes[self._place]))
    total: MemoryTotal = view_property(lambda self: MemoryTotal(self._peak, self._peak))
    """The most that the tile ever holds."""
    alwaysLiveBytes: int = view_property(
        lambda self: int(self._held.always_live_bytes_of_tile[self._place])
    )
    """Bytes that the tile holds at every step: variables, constants and code."""
    notAlwaysLiveBytes: int = view_property(lambda self: self._peak - self.alwaysLiveBytes)
    """The most bytes that the tile ever holds beside those."""
    category: Categories = view_property(lambda self: Categories(self._held, *self._place))
    """The bytes by category."""


class Tile(View):
    """A tile of one of the IPUs."""

    id: int = view_property(lambda self: self._place[0])
    """Counted over all IPUs."""
    ipu: int = view_property(lambda self: self._held.split_tile_id(self.id)[0])
    """The IPU that it is of."""
    memory: TileMemory = view_property(
        lambda self: TileMemory(self._held, *self._held.split_tile_id(self.id))
    )
    """The memory of the tile."""


@check.guard
class IPU(View):
    """An IPU of one replica."""

    Architecture: ClassVar[type[Architecture]] = Architecture

    id: int = view_property(lambda self: self._place[0])
    """Counted from 0."""

    @property
    def tiles(self) -> Lazy[int, Tile]:
        """The tiles of the IPU."""
        count = self._held.report.target.tiles_per_ipu
        first = self.id * count
        return Lazy(range(count), lambda tile: Tile(self._held, first + tile), "tile")


@dc.dataclass(frozen=True)
class VertexType:
    """A kind of vertex, and how many there are."""

    name: str
    count: int


class Graph(View):
    """The sizes of the graph, all IPUs of one replica together.

    Each tile that has any vertices of an operation counts as having as many as the one that has
    most. What is run again, or outlined, is there once.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "numConstraints": "it lays tensors by rules: use numVars",
    }

    @property
    def _sizes(self) -> machine.Graph:
        graph = self._held.report.graph
        if graph is None:
            raise UnmodelledError(
                "this report is of an ipujax that did not count compute sets and vertices",
                fix="write it again with report.to_json(path)",
            )
        return graph

    numComputeSets: int = view_property(lambda self: self._sizes.compute_sets)
    """Supersteps that compute."""
    numVertices: int = view_property(lambda self: sum(self._sizes.vertices.values()))
    """Vertices of all kinds."""
    numEdges: int = view_property(lambda self: self._sizes.edges)
    """One for each operand and result of each vertex; Poplar's, one for each region, are more."""
    numVars: int = view_property(lambda self: len(self._held.tensors))
    """Tensors that tiles ever hold; one on several IPUs is there several times."""

    @property
    def vertexTypes(self) -> list[VertexType]:
        """The kinds of vertices, most first."""
        return [VertexType(*kind) for kind in self._sizes.vertices.items()]


@dc.dataclass(frozen=True)
class StepProgram:
    """The operation that runs at a step.

    Attributes:
      name: the name of the operation.
      origin: the user's `file:line`, or "".
    """

    name: str
    origin: str


class LiveMemory(View):
    """The memory of a step that is not always live; empty where there is no step."""

    def _bytes_at_step(self, column_name: str) -> int:
        if not self._place:
            return 0
        ipu, step = self._place
        return int(getattr(self._held.report.liveness[ipu], column_name)[step])

    bytes: int = view_property(lambda self: self._bytes_at_step("bytes"))
    """On all tiles together, work space included."""
    temporaryBytes: int = view_property(lambda self: self._bytes_at_step("temporary_bytes"))
    """The work space among them; ipujax's own."""

    @property
    def variables(self) -> list[Variable]:
        """The tensors in that memory, largest first."""
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

    ipu: int = view_property(lambda self: self._place[0])
    """The IPU whose step it is."""
    notAlwaysLiveMemory: LiveMemory = view_property(
        lambda self: LiveMemory(self._held, *self._place)
    )
    """The memory of this step that is not always live."""

    @property
    def program(self) -> StepProgram:
        """The operation that runs at this step."""
        ipu, step = self._place
        liveness = self._held.report.liveness[ipu]
        return StepProgram(liveness.names[step], liveness.origins[step])

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> LiveMemory:
        """Returns that memory on one IPU: empty on others than that of the step.

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
    """The tensors of each tile."""

    allBriefVars: list[LoweredVariable] = view_property(
        lambda self: list(self._held.list_lowered_variables())
    )
    """Every tensor on every tile that has any of it: many."""

    def forTile(self, tile: int) -> list[LoweredVariable]:
        """Returns the tensors on one tile, counted over all IPUs."""
        return list(self._held.list_lowered_variables(tile))


@check.guard
class CompilationReport(View):
    """One replica's program."""

    target: Target = view_property(lambda self: Target(self._held))
    """The IPUs that it was compiled for."""
    graph: Graph = view_property(lambda self: Graph(self._held))
    """The sizes of the graph."""
    ipus: Lazy[int, IPU] = view_property(
        lambda self: self._views_by_number(self.target.numIPUs, IPU, "IPU")
    )
    """The IPUs."""
    tiles: Lazy[int, Tile] = view_property(
        lambda self: self._views_by_number(self.target.numTiles, Tile, "tile")
    )
    """The tiles of all IPUs."""
    alwaysLiveVariables: list[Variable] = view_property(
        lambda self: list(self._held.list_always_live_variables())
    )
    """The tensors that are live at every step, and code under the names of its categories."""
    loweredVariables: LoweredVariables = view_property(lambda self: LoweredVariables(self._held))
    """Tensors by tile, with their lifetimes."""
    programs: list[Program] = view_property(
        lambda self: list(walk_programs(self._held.report.program))
    )
    """All parts of the program tree, each once, the whole program first."""

    def _views_by_number(self, count: int, view: type[View], noun: str) -> Lazy[int, View]:
        return Lazy(range(count), lambda i: view(self._held, i), noun)

    @property
    def livenessProgramSteps(self) -> Lazy[int, LivenessProgramStep]:
        """The steps of IPU 0, then those of IPU 1 and so on; bodies of loops are there once."""
        first = self._held.first_step_of_ipu

        def view_of_step(i: int) -> LivenessProgramStep:
            ipu = bisect.bisect_right(first, i) - 1
            return LivenessProgramStep(self._held, ipu, i - first[ipu])

        return Lazy(range(first[-1]), view_of_step, "step")

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """Returns the always live variables of one tile, counted over all IPUs."""
        return list(self._held.list_always_live_variables(tile))
