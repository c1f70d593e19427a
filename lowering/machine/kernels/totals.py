"""The results of costing a kernel."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import TypeVar

from lowering.ground import Superstep
from lowering.jaxprs import CallPath
from lowering.machine.cost import Vertices
from lowering.machine.kernels.code import CodeUse
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.kernel_memory import KernelMemory
from lowering.machine.kernels.layouts import OperandTiles, TensorLayout, resolve_first_tile
from lowering.machine.program_tree import ProgramNode
from lowering.machine.trace import Trace

_Key = TypeVar("_Key")


@dc.dataclass(slots=True)
class Total:
    """All runs of operations of one signature and line; see `profile.OperationTotal`.

    Attributes:
      label: their name for people; "" for moves of data, whose title says it.
      scope: the named scopes around them, as `blocks/attention`, or "".
      call_path: the user's frames behind them.
      direction: the direction of the pass that they belong to.
      dtype: the type of the numbers that they work on; "" for moves of data.
      units: the name of the roof of the units that compute them, see `roofline`; "" for none.
      first_tile: where its vertices begin.
      vertices: its vertices, by kind.
      step: what the user has laid out on tiles; None for all else.
      bubble_cycles: for transfers after ticks, cycles that the IPU waits in ticks without a task.
    """

    title: str
    label: str = ""
    source: str = "formula"
    origin: str = ""
    scope: str = ""
    call_path: CallPath = ()
    direction: Direction | None = None
    dtype: str = ""
    units: str = ""
    runs: float = 0.0
    cycles: float = 0.0
    compute_cycles: float = 0.0
    exchange_cycles: float = 0.0
    bubble_cycles: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    exchange_bytes: float = 0.0
    remote_bytes: float = 0.0
    tiles: int = 0
    first_tile: int = 0
    vertices: tuple[Vertices, ...] = ()
    step: Superstep | None = None

    def without_runs(self) -> Total:
        """Returns a total of the same operations without any runs."""
        return Total(
            self.title,
            self.label,
            self.source,
            self.origin,
            self.scope,
            self.call_path,
            self.direction,
            self.dtype,
            self.units,
            first_tile=self.first_tile,
            vertices=self.vertices,
            step=self.step,
        )

    def add_runs(self, further_total: Total, times: float = 1.0) -> None:
        """Adds the runs of another total, `times` over."""
        self.runs += further_total.runs * times
        self.cycles += further_total.cycles * times
        self.compute_cycles += further_total.compute_cycles * times
        self.exchange_cycles += further_total.exchange_cycles * times
        self.bubble_cycles += further_total.bubble_cycles * times
        self.flops += further_total.flops * times
        self.bytes += further_total.bytes * times
        self.exchange_bytes += further_total.exchange_bytes * times
        self.remote_bytes += further_total.remote_bytes * times
        self.tiles = max(self.tiles, further_total.tiles)


def add_runs_of(
    total: Total,
    totals: dict[_Key, Total],
    key: _Key,
    times: float = 1.0,
    operand_tiles: OperandTiles = (),
) -> None:
    """Adds the runs of a total, `times` over, to the one that has a key."""
    known = totals.get(key)
    if known is None:
        known = totals[key] = total.without_runs()
        if operand_tiles:
            known.first_tile = resolve_first_tile(total.first_tile, operand_tiles)
    known.add_runs(total, times)


class SignatureNumbers:
    """A counter that gives a number to each signature of an operation."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def __call__(self, signature: object) -> int:
        """Returns the number of a signature; the same signature gets the same number."""
        return self._known.setdefault(signature, len(self._known))


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelCost:
    """The cost of one run of a kernel.

    Attributes:
      trace: its supersteps, as on IPU 0.
      nodes: its operations in the program tree.
      cycles: cycles from start to end.
      operands: the layouts of its operands; those that had none lie as the kernel wants them.
      results: the layouts of its results.
      views: positions of the results that are views of other tensors.
      life: memory beside the operands, results included.
      code: the code that must be on the tiles, by signature of the operation.
      calls: the signatures of its operations in their order, those of a body once.
      totals: the totals of operations, by their numbers.
      assumptions: the assumptions of the model, as sentences.
      leaves_ipu: whether any of it goes to other IPUs, the host or streaming memory.
      operand_tiles: the tiles for which stand-ins in `life`, `code` and `totals` stand; (): there
        are none, or they are left as they are.
    """

    trace: Trace
    nodes: tuple[ProgramNode, ...]
    cycles: int
    operands: tuple[TensorLayout, ...]
    results: tuple[TensorLayout, ...]
    views: frozenset[int]
    life: KernelMemory
    code: Mapping[object, CodeUse]
    calls: tuple[object, ...]
    totals: Mapping[int, Total]
    assumptions: tuple[str, ...]
    leaves_ipu: bool
    operand_tiles: OperandTiles = ()
