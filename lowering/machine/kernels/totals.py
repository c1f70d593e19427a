"""What a kernel's cost consists of."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

from lowering.call_paths import CallPath
from lowering.machine.kernels.code import CodeUse
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.life import Life
from lowering.machine.program_tree import ProgramNode
from lowering.machine.trace import Trace

_NOTHING: dict[str, Any] = dict(
    runs=0.0,
    cycles=0.0,
    compute_cycles=0.0,
    exchange_cycles=0.0,
    bubble_cycles=0.0,
    flops=0.0,
    bytes=0.0,
    tiles=0,
)


@dc.dataclass(slots=True)
class Total:
    """All runs of operations of one signature and line; see `profile.OperationTotal`.

    Attributes:
      label: what people call them; "" for what moves data, whose title says it.
      scope: the named scopes around them, as `blocks/attention`, or "".
      call_path: the user's frames behind them.
      direction: of the pass that they belong to.
      dtype: of the numbers that they work on; "" for what moves data.
      bubble_cycles: of transfers after ticks, what the IPU waits in these for want of a task.
    """

    title: str
    label: str = ""
    source: str = "formula"
    origin: str = ""
    scope: str = ""
    call_path: CallPath = ()
    direction: Direction | None = None
    dtype: str = ""
    runs: float = 0.0
    cycles: float = 0.0
    compute_cycles: float = 0.0
    exchange_cycles: float = 0.0
    bubble_cycles: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    tiles: int = 0

    def none_yet(self) -> Total:
        """A total of nothing, for more of the same operations."""
        return dc.replace(self, **_NOTHING)

    def add(self, other: Total, times: float = 1.0) -> None:
        """Adds another's runs, `times` over."""
        self.runs += other.runs * times
        self.cycles += other.cycles * times
        self.compute_cycles += other.compute_cycles * times
        self.exchange_cycles += other.exchange_cycles * times
        self.bubble_cycles += other.bubble_cycles * times
        self.flops += other.flops * times
        self.bytes += other.bytes * times
        self.tiles = max(self.tiles, other.tiles)


class Numbers:
    """Numbers signatures of operations as they come."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def __call__(self, signature: object) -> int:
        """The same for the same signature."""
        return self._known.setdefault(signature, len(self._known))


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelCost:
    """What one run of a kernel costs.

    Attributes:
      trace: its supersteps, as on IPU 0.
      nodes: its operations in the program tree.
      cycles: from start to end.
      operands: how its operands lie; where nobody has laid them before, as the kernel wants them.
      results: how its results lie.
      views: positions of the results that are other tensors seen otherwise.
      life: memory beside the operands, results included.
      code: what must be on the tiles, by signature of the operation.
      totals: where the cycles go, by the number of the operation.
      assumptions: what had to be assumed.
    """

    trace: Trace
    nodes: tuple[ProgramNode, ...]
    cycles: int
    operands: tuple[Laid, ...]
    results: tuple[Laid, ...]
    views: frozenset[int]
    life: Life
    code: Mapping[object, CodeUse]
    totals: Mapping[int, Total]
    assumptions: tuple[str, ...]
