"""What was compiled: the chip, memory, liveness and the program tree."""

from __future__ import annotations

import bisect
import dataclasses as dc
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ipujax.report.pva.memory import Held, LoweredVariable, TileMemory, Variable
from ipujax.report.pva.programs import Program, below
from ipujax.report.pva.view import Lazy, View

if TYPE_CHECKING:
    from ipujax.report.report import Report
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

    def __init__(self, report: Report) -> None:
        self._chip, self.numIPUs = report.target, report.num_ipus
        self.numReplicas = report.replication_factor

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

    @property
    def tilesPerIpu(self) -> int:
        """Tiles of one IPU."""
        return self._chip.tiles_per_ipu

    @property
    def numTiles(self) -> int:
        """Tiles of all IPUs of one replica."""
        return self.numIPUs * self.tilesPerIpu

    @property
    def bytesPerTile(self) -> int:
        """Memory of one tile."""
        return self._chip.bytes_per_tile

    @property
    def bytesPerIPU(self) -> int:
        """Memory of one IPU's tiles."""
        return self.tilesPerIpu * self.bytesPerTile

    @property
    def totalMemory(self) -> int:
        """Memory of the tiles of all IPUs of one replica."""
        return self.numTiles * self.bytesPerTile

    @property
    def clockFrequency(self) -> float:
        """Tile cycles per second."""
        return self._chip.clock_hz


class Tile(View):
    """A tile of one of the IPUs."""

    def __init__(self, held: Held, number: int) -> None:
        self._held, self.id = held, number
        self.ipu, self._tile = held.place(number)

    @property
    def memory(self) -> TileMemory:
        """What it holds."""
        return TileMemory(self._held, self.ipu, self._tile)


class IPU(View):
    """An IPU of one replica."""

    Architecture: ClassVar[type[Architecture]] = Architecture

    def __init__(self, held: Held, number: int) -> None:
        self._held, self.id = held, number

    @property
    def tiles(self) -> Lazy[int, Tile]:
        """Its tiles."""
        count = self._held.report.target.tiles_per_ipu
        first = self.id * count
        return Lazy(range(count), lambda tile: Tile(self._held, first + tile), "tile")


class Graph(View):
    """Sizes of the graph."""

    instead: ClassVar[Mapping[str, str]] = {
        "numComputeSets": "count report.compilation.programs of type OnTileExecute",
        "numVertices": "count report.compilation.programs of type OnTileExecute",
        "numEdges": "use numVars, or report.compilation.programs",
    }

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def numVars(self) -> int:
        """Tensors that tiles ever hold; one on several IPUs is there several times."""
        return len(self._held.tensors)


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
    """What is there at a step and not always."""

    def __init__(self, liveness: machine.Liveness | None, step: int) -> None:
        self._liveness, self._step = liveness, step

    @property
    def bytes(self) -> int:
        """On all tiles together, work space included."""
        return 0 if self._liveness is None else int(self._liveness.bytes[self._step])

    @property
    def temporaryBytes(self) -> int:
        """The work space among them; ipujax's own."""
        return 0 if self._liveness is None else int(self._liveness.temporary_bytes[self._step])

    @property
    def variables(self) -> list[Variable]:
        """The tensors among them, largest first."""
        if self._liveness is None:
            return []
        return [
            Variable(tensor.name, tensor.total_bytes, tensor.origin)
            for tensor in self._liveness.alive_at(self._step)
            if tensor.first is not None
        ]


class LivenessProgramStep(View):
    """A step of one IPU; it holds nothing on the others."""

    instead: ClassVar[Mapping[str, str]] = {
        "notAlwaysLiveMemoryForTile": "the model knows work space for all tiles together: use "
        "notAlwaysLiveMemoryForIpu(ipu), or report.compilation.tiles[i].memory for the worst step"
    }

    def __init__(self, report: Report, ipu: int, step: int) -> None:
        self._report, self.ipu, self._step = report, ipu, step

    @property
    def program(self) -> StepProgram:
        """What runs then."""
        held = self._report.liveness[self.ipu]
        return StepProgram(held.names[self._step], held.origins[self._step])

    @property
    def notAlwaysLiveMemory(self) -> LiveMemory:
        """What is there at this step and not always."""
        return LiveMemory(self._report.liveness[self.ipu], self._step)

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> LiveMemory:
        """The same on one IPU: nothing on others than that of the step.

        Raises:
          IndexError: an IPU that the replica does not have.
        """
        count = len(self._report.liveness)
        if not 0 <= ipu < count:
            raise IndexError(f"there is no IPU {ipu}: the replica has {count}, counted from 0")
        held = self._report.liveness[ipu]
        return LiveMemory(held if ipu == self.ipu else None, self._step)


class LoweredVariables(View):
    """Tensors by tile."""

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def allBriefVars(self) -> list[LoweredVariable]:
        """Every tensor on every tile that has any of it: many."""
        return list(self._held.lowered())

    def forTile(self, tile: int) -> list[LoweredVariable]:
        """Those on one tile, counted over all IPUs."""
        return list(self._held.lowered(tile))


class CompilationReport(View):
    """One replica's program."""

    def __init__(self, report: Report) -> None:
        self._report, self._held = report, Held(report)

    @property
    def target(self) -> Target:
        """What it was compiled for."""
        return Target(self._report)

    @property
    def graph(self) -> Graph:
        """How large it is."""
        return Graph(self._held)

    @property
    def ipus(self) -> Lazy[int, IPU]:
        """The IPUs."""
        return Lazy(range(self._report.num_ipus), lambda i: IPU(self._held, i), "IPU")

    @property
    def tiles(self) -> Lazy[int, Tile]:
        """The tiles of all IPUs."""
        return Lazy(range(self.target.numTiles), lambda i: Tile(self._held, i), "tile")

    @property
    def livenessProgramSteps(self) -> Lazy[int, LivenessProgramStep]:
        """The steps of IPU 0, then those of IPU 1 and so on; bodies of loops are there once."""
        first = self._held.first_step

        def step(i: int) -> LivenessProgramStep:
            ipu = bisect.bisect_right(first, i) - 1
            return LivenessProgramStep(self._report, ipu, i - first[ipu])

        return Lazy(range(first[-1]), step, "step")

    @property
    def alwaysLiveVariables(self) -> list[Variable]:
        """What is there at every step; code is among it under its category's name."""
        return list(self._held.always_live())

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """The same on one tile, counted over all IPUs."""
        return list(self._held.always_live(tile))

    @property
    def loweredVariables(self) -> LoweredVariables:
        """Tensors by tile, with their lifetimes."""
        return LoweredVariables(self._held)

    @property
    def programs(self) -> list[Program]:
        """All parts of the program tree, each once, the whole program first."""
        return list(below(self._report.program))
