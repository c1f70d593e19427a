"""The result of the machine model for a program, as plain data for reports."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from lowering.ground import limit_dir_to
from lowering.machine.compute_sets import TileWork
from lowering.machine.kernels.directions import Direction
from lowering.machine.liveness_report import Liveness, describe_owner
from lowering.machine.mapping import TileMapping
from lowering.machine.memory_picture import draw_memory
from lowering.machine.program_tree import ProgramNode
from lowering.machine.target import Target
from lowering.machine.trace import Steps
from lowering.schedules import Phase

CATEGORIES = (
    "variables",
    "constants",
    "activations",
    "fifos",
    "temporaries",
    "vertex_code",
    "vertex_state",
    "control_code",
    "exchange_code",
    "stack",
)
"""The categories of the contents of a tile's memory."""

FETCHED = ("vertex_code", "control_code", "exchange_code")
"""The categories that are instructions, which fit only in a part of a tile's memory."""


DIRECTIONS = get_args(Direction)
"""The passes that operations belong to."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that is alive on the fullest IPU at the step that needs the most memory.

    Attributes:
      name: shape and dtype, as `float16[1024,4096]`.
      category: one of `CATEGORIES`.
      ipu: the IPU that holds it.
      total_bytes: on all tiles of the IPU together.
      tile_bytes: on the IPU's worst tile.
      operation: the primitive that makes it; "argument" and "constant" for those.
      origin: the user's `file:line`, or "".
      value: its number in the Program; None for one inside of a kernel.
      path: the user's name of it, as `params['w']` or `params['w']: gradient sum`, or "".
      label: what makes it, in the words that people use, as `matmul 64 x 512`.
      scope: the named scopes around what makes it, as `blocks/attention`, or "".
    """

    name: str
    category: str
    ipu: int
    total_bytes: int
    tile_bytes: int
    operation: str
    origin: str
    value: int | None = None
    path: str = ""
    label: str = ""
    scope: str = ""

    @property
    def owner(self) -> str:
        """What it belongs to: `params['w']`, `results[0], divide`, `matmul 64 x 512`."""
        return describe_owner(self.path, self.label or self.operation)


@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Memory:
    """Memory of the IPUs of one replica, in bytes.

    Attributes:
      tile_peak_bytes: int64 [ipus, tiles]: what is always alive, and the most that is beside it.
      always_live_bytes: int64 [ipus]: on all tiles together, at every step.
      peak_bytes: int64 [ipus]: on all tiles together, at the step that needs most.
      tile_categories: for each category int64 [ipus, tiles], at the IPU's step that needs most;
        all together add up to `peak_bytes`.
      limit: bytes of one tile that a program may fill.
      most_code_bytes: instructions on the tile that has most of them.
      code_limit: the part of a tile's memory from which instructions can be fetched.
      biggest: the largest tensors alive at the worst step of the IPU with the fullest tile.
      remote_bytes: int64 [ipus]: kept in streaming memory.
    """

    tile_peak_bytes: np.ndarray
    tile_categories: Mapping[str, np.ndarray]
    always_live_bytes: np.ndarray
    peak_bytes: np.ndarray
    limit: int
    most_code_bytes: int
    code_limit: int
    biggest: tuple[Tensor, ...]
    remote_bytes: np.ndarray

    def _repr_html_(self) -> str:
        """Returns a drawing, for notebooks."""
        return draw_memory(self)

    def __repr__(self) -> str:
        ipu, tile = self.worst
        full = f"{self.tile_peak_bytes[ipu, tile]:,} of {self.limit:,} bytes"
        return f"<Memory: the fullest tile, IPU {ipu} tile {tile}, holds {full}>"

    @property
    def ipu_categories(self) -> Mapping[str, np.ndarray]:
        """The bytes of each category by IPU, int64 [ipus], at its step that needs most."""
        return {name: bytes_.sum(axis=1) for name, bytes_ in self.tile_categories.items()}

    @property
    def by_category(self) -> Mapping[str, int]:
        """The bytes of each category at those steps, all IPUs together."""
        return {name: int(bytes_.sum()) for name, bytes_ in self.tile_categories.items()}

    @property
    def fits(self) -> bool:
        """True if no tile needs more than it has, for instructions and in all."""
        return not self.missing_bytes

    @property
    def worst(self) -> tuple[int, int]:
        """The IPU and the tile that need the most memory."""
        ipu, tile = divmod(int(self.tile_peak_bytes.argmax()), self.tile_peak_bytes.shape[1])
        return ipu, tile

    @property
    def missing_bytes(self) -> int:
        """The bytes that the worst tile lacks, for code or in all; 0 if the program fits."""
        over = int(self.tile_peak_bytes.max()) - self.limit
        return max(0, over, self.most_code_bytes - self.code_limit)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The size of the graph of all IPUs of a replica.

    Attributes:
      compute_sets: supersteps that compute; those that run again, or share their code, count once
        for each IPU.
      vertices: how many there are of each kind, as if all tiles that have any had as many as the
        one that has most; most first.
      edges: connections of vertices with tensors, one for each operand and result of the operation
        of a vertex. Poplar has one for each region of these, so more.
    """

    compute_sets: int
    vertices: Mapping[str, int]
    edges: int


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class OperationTotal:
    """All runs of operations of one signature and line on one IPU, in one call.

    Attributes:
      name: the primitive and its result, as `dot_general float16[128,1024]`, and whether it
        belongs to a backward pass.
      ipu: the IPU that runs them.
      runs: how often.
      cycles: cycles of all runs together, their exchange and syncs included.
      exchange_cycles: the share of it that is exchange.
      flops: floating-point operations of all runs together.
      flop_utilisation: the share of the peak of all units of the IPU in that time, in numbers of
        its type; None for operations without floating-point operations.
      bytes: bytes of operands and results of all runs together.
      exchange_bytes: bytes that the busiest tile receives, of all runs together.
      remote_bytes: bytes from and to streaming memory, of all runs together.
      units: the name of the roof of the units that compute it, see `roofline.Roof`; "" without
        floating-point operations, and in reports of earlier versions.
      tiles: tiles that take part.
      source: "formula" or "default", see `cost.Cost`.
      origin: the user's `file:line` of one of them.
      scope: the named scopes around them, outermost first, as `blocks/attention`, or "".
      call_path: the user's frames behind them, as `file:line (function)`, outermost first; those of
        installed packages are left out, unless there are no others.
      direction: "forward", "backward" or "update", see `program_directions`; None for moves that
        serve several and for programs without a backward pass.
      number: the number that its steps carry; equal operations of several IPUs have one number.
      label: its name for people, as `conv 3x3 16 -> 32`; see `labels`.
    """

    name: str
    ipu: int
    runs: int
    cycles: float
    exchange_cycles: float
    flops: float
    flop_utilisation: float | None
    bytes: float
    tiles: int
    source: str
    origin: str
    scope: str = ""
    call_path: tuple[str, ...] = ()
    direction: str | None = None
    number: int = -1
    label: str = ""
    exchange_bytes: float = 0.0
    remote_bytes: float = 0.0
    units: str = ""


TASK_PHASES = tuple(phase.word for phase in Phase)
"""The words of reports for the phases of tasks; arrays hold the index."""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """The tasks of one run of a pipeline, by tick, then stage, phase and micro-batch.

    Attributes:
      stage: int32 [tasks].
      phase: int8 [tasks], index into `TASK_PHASES`.
      micro_batch: int32 [tasks].
      tick: int32 [tasks], in which each runs.
    """

    stage: np.ndarray
    phase: np.ndarray
    micro_batch: np.ndarray
    tick: np.ndarray

    @classmethod
    def from_unsorted_tasks(
        cls, stage: np.ndarray, phase: np.ndarray, micro_batch: np.ndarray, tick: np.ndarray
    ) -> Grid:
        """Builds a grid of tasks that come in any order."""
        order = np.lexsort((micro_batch, phase, stage, tick))
        return cls(
            stage=stage[order].astype(np.int32),
            phase=phase[order].astype(np.int8),
            micro_batch=micro_batch[order].astype(np.int32),
            tick=tick[order].astype(np.int32),
        )


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProfile:
    """The use of its IPUs by a pipeline.

    Attributes:
      schedule: the name of its schedule.
      stages: how many; below, stage s of copy c is the stage c * `stages` + s, where there are
        copies.
      micro_batches: how many in one run of the pipeline.
      ticks: ticks of one run, the weight update not counted.
      bubble_fraction: the idle share of the grid of IPUs and ticks.
      utilisation: the share of the pipeline's cycles in which an IPU works, averaged over IPUs.
      tick_cycles: int64 [ticks]: how long each takes; its slowest IPU sets it.
      stage_cycles: cycles of one task, by stage and phase ("fwd", "bwd", and "wgt" where
        gradients of weights are tasks of their own).
      cycles: cycles of one run, the update not counted.
      stage_ipus: the IPUs of each stage.
      grid: which task runs in which tick.
    """

    schedule: str
    stages: int
    micro_batches: int
    ticks: int
    bubble_fraction: float
    utilisation: float
    tick_cycles: np.ndarray
    stage_cycles: Mapping[tuple[int, str], int]
    cycles: int
    stage_ipus: tuple[tuple[int, ...], ...]
    grid: Grid


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The cost of one call of a program on one kind of IPU.

    Attributes:
      name: the program's.
      target: the chip.
      num_ipus: IPUs of one replica.
      replication_factor: how many replicas run side by side.
      instances: how many processes they are dealt to, on machines of their own.
      cycles: cycles of one call.
      steps: the steps of each IPU.
      memory: the memory of one replica's IPUs.
      liveness: the tensors of each of these at every step.
      operations: totals of the operations, most expensive first.
      program: the program as a tree; its root takes `cycles`.
      default_share: the share of compute cycles that rests on default formulas, 0 to 1.
      pipeline: the profile of the program's first pipeline, if it has one.
      assumptions: assumptions of the model, such as trip counts that only values tell.
      mappings: the mapping of each value, by value of the Program and IPU.
      graph: the size of the graph; None in reports of earlier versions.
      tile_work: where operations are, by their numbers; None in reports from files.
      breakdown: the causes of the cycles: for each of `breakdown.CAUSES` int64 [ipus], which add up
        to `cycles` on each IPU; None in reports of earlier versions.
    """

    name: str
    target: Target
    num_ipus: int
    replication_factor: int
    cycles: int
    steps: Steps
    memory: Memory
    liveness: Sequence[Liveness]
    operations: Sequence[OperationTotal]
    program: ProgramNode
    default_share: float
    pipeline: PipelineProfile | None = None
    instances: int = 1
    assumptions: tuple[str, ...] = ()
    mappings: Mapping[tuple[int, int], TileMapping]
    graph: Graph | None = None
    breakdown: Mapping[str, np.ndarray] | None = None
    tile_work: Mapping[int, TileWork] | None = None

    @property
    def seconds(self) -> float:
        """The seconds that one call takes."""
        return self.cycles / self.target.clock_hz
