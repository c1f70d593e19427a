"""The memory that code takes on the tiles: vertex code and state, control and exchange code.

Repeated code is outlined, as the original did unless outlining was switched off: an operation of
one signature is on an IPU once, however often it runs, and only each call to it is counted again.
A repeated sequence of operations, such as a layer, is a function: its repetitions are calls alone
(`functions.py`). The body of an outlined function is always shared, whatever the option says.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Iterable, Mapping

import numpy as np

from lowering.machine.cost import Phase, Vertices
from lowering.machine.kernels.layouts import OperandTiles, resolve_first_tile
from lowering.machine.transfers.exchange_code import ExchangeGoal, Pieces


@dc.dataclass(frozen=True, slots=True)
class CodeUse:
    """The code that one operation needs on the tiles.

    Attributes:
      vertices: kinds and numbers.
      phases: its supersteps.
      exchanges: those of them that exchange data.
      compute_sets: how many of its supersteps compute.
      tensors: the operands and results with which each of its vertices is connected.
      blocks: the outlined functions that have it, each with whether it is its backward pass.
      alone: how often the program has it outside of these.
      entered: how often an outlined function that begins with it is called.
      first_tile: where its vertices begin: where its first result does, at its first call.
      from_outside: how many of those alone read what lies outside of their kernel.
    """

    vertices: tuple[Vertices, ...]
    phases: int
    exchanges: tuple[Phase, ...] = ()
    compute_sets: int = 0
    tensors: int = 0
    blocks: frozenset[tuple[str, bool]] = frozenset()
    alone: int = 1
    entered: int = 0
    first_tile: int = 0
    from_outside: int = 0

    def for_operands(self, operand_tiles: OperandTiles) -> CodeUse:
        """Returns the code in a kernel whose operands begin on these tiles."""
        first_tile = resolve_first_tile(self.first_tile, operand_tiles)
        return self if first_tile == self.first_tile else dc.replace(self, first_tile=first_tile)

    def find_tiles(self, used: int, tiles: int) -> np.ndarray:
        """Returns the numbers of so many tiles from its first on, of all tiles to wrap around."""
        return (self.first_tile + np.arange(used)) % tiles

    def exchange_code_bytes(
        self, tiles: int, goal: ExchangeGoal, outlines: bool = True
    ) -> np.ndarray:
        """Returns int64 [tiles]: the bytes of the code of its exchanges.

        Equal exchanges have the same code, even where nothing is outlined, unless they send what
        lies elsewhere, such as the weights of another layer (docs/hardware.md, Memory).
        """
        own_copies = 1 if outlines else max(1, self.from_outside + len(self.blocks))
        bytes_ = np.zeros(tiles, dtype=np.int64)
        for phase in self.exchanges:
            copies = own_copies if phase.moves_operands else 1
            bytes_ += copies * self._code_bytes_of_exchange(phase, tiles, goal)
        return bytes_

    def _code_bytes_of_exchange(self, phase: Phase, tiles: int, goal: ExchangeGoal) -> np.ndarray:
        """Returns int64 [tiles]: the bytes of one copy of the code of one exchange.

        Where only some tiles receive, each copy of an unrolled phase is on others, and all tiles
        together send what these receive.
        """
        pieces, copies = phase.exchanged_pieces, phase.code_copies
        if phase.receivers is None:
            return np.full(tiles, copies * pieces.code_bytes(goal))
        sent = math.ceil(pieces.sent * phase.receivers / tiles)
        bytes_ = np.full(tiles, copies * Pieces(sent=sent).code_bytes(goal))
        receiving = dc.replace(pieces, sent=0.0).code_bytes(goal) - Pieces().code_bytes(goal)
        np.add.at(bytes_, self.find_tiles(phase.receivers * copies, tiles), receiving)
        return bytes_

    def repeat(self, times: int) -> CodeUse:
        """Returns so many times as many calls of the same operation."""
        if times == 1:
            return self
        return dc.replace(
            self,
            alone=self.alone * times,
            entered=self.entered * times,
            from_outside=self.from_outside * times,
        )

    def add_calls(self, inside: int, from_outside: int) -> CodeUse:
        """Returns this use together with more calls outside of outlined functions.

        Args:
          inside: how many read nothing from outside of their kernel.
          from_outside: how many do.
        """
        if not inside + from_outside:
            return self
        return dc.replace(
            self,
            alone=self.alone + inside + from_outside,
            from_outside=self.from_outside + from_outside,
        )

    def add_uses(self, further_use: CodeUse) -> CodeUse:
        """Returns this use together with more calls of the same operation."""
        return CodeUse(
            self.vertices,
            self.phases,
            self.exchanges,
            self.compute_sets,
            self.tensors,
            self.blocks | further_use.blocks,
            self.alone + further_use.alone,
            self.entered + further_use.entered,
            self.first_tile,
            self.from_outside + further_use.from_outside,
        )

    def count_code_copies(self, outlines: bool) -> int:
        """Returns how many copies of the operation's code are on the tiles.

        Args:
          outlines: whether all calls share it; those of one outlined function do in any case.
        """
        return 1 if outlines else self.alone + len(self.blocks)


# Instructions of the supervisor and the workers of convolutions' vertices, counted in their
# assembly (poplibs: lib/poplin/codelets/asm). Each is a word.
INSTRUCTION_BYTES = 4
INSTRUCTIONS = {
    "poplin::ConvPartialnx1": 729,
    "poplin::ConvPartial1x1Out": 401,
    "poplin::ConvPartial1x4SLIC": 390,
    "poplin::ConvPartialVerticalMac": 274,
    "poplin::ConvPartialHorizontalMac": 205,
}

# Fitted once, over the parts of the memory profiles that popliner's tests hold (EfficientNet,
# BERT-Large and a tiny BERT: vertex code, vertex state and control code): no source gives them
# (docs/hardware.md, Memory). The code of exchanges goes by instructions.
BYTES_PER_VERTEX_KIND = 440  # of the other kinds
BYTES_PER_VERTEX = 100
BYTES_PER_CALL = 12
BYTES_PER_PHASE = 13

# The stacks of the six workers and the supervisor of a tile. An estimate: codelets of the libraries
# need more than Poplar's minimum, and no source gives it.
STACK_BYTES = 1_024


def bytes_of_kind(kind: str) -> int:
    """Returns the bytes of the code of a kind of vertex, such as `popops::Add<half>`."""
    instructions = INSTRUCTIONS.get(kind.partition("<")[0])
    return BYTES_PER_VERTEX_KIND if instructions is None else INSTRUCTION_BYTES * instructions


def compute_code_bytes(
    uses: Iterable[CodeUse],
    calls: int,
    tiles: int,
    *,
    outlines: bool = True,
    goal: ExchangeGoal = "cycles",
) -> Mapping[str, np.ndarray]:
    """Computes the bytes of code that a set of operations takes on each tile.

    Args:
      uses: the operations of one IPU, each signature once.
      calls: how many calls of operations and of repeated sequences of them its programs have.
      tiles: how many tiles it has.
      outlines: whether calls of one signature share their code, as calls of outlined functions do;
        what vertices execute is shared in any case.
      goal: what the code of exchanges is compiled for.

    Returns:
      int64 [tiles] for each category of code in `profile.CATEGORIES`.
    """
    tiles_of_kind: dict[str, np.ndarray] = {}
    uses = tuple(uses)
    state, control, exchange = np.zeros((3, tiles), dtype=np.int64)
    control += BYTES_PER_CALL * (calls if outlines else sum(use.entered for use in uses))
    for use in uses:
        copies = use.count_code_copies(outlines)
        for vertices in use.vertices:
            place: np.ndarray = use.find_tiles(vertices.tiles, tiles)
            vertices_per_tile: int | np.ndarray = vertices.copies * vertices.per_tile
            if vertices.where is not None:
                place = np.flatnonzero(vertices.where.array)
                vertices_per_tile = vertices.where.array[place]
            tiles_of_kind.setdefault(vertices.kind, np.zeros(tiles, dtype=np.int64))[place] = 1
            state[place] += copies * vertices_per_tile * BYTES_PER_VERTEX
        control += copies * use.phases * BYTES_PER_PHASE
        exchange += use.exchange_code_bytes(tiles, goal, outlines)
    code = (bytes_of_kind(kind) * on_tiles for kind, on_tiles in tiles_of_kind.items())
    return {
        "vertex_code": sum(code, np.zeros(tiles, dtype=np.int64)),
        "vertex_state": state,
        "control_code": control,
        "exchange_code": exchange,
        "stack": np.full(tiles, STACK_BYTES, dtype=np.int64),
    }
