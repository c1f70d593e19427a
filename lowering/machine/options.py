"""What the machine model is told beside the program."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Iterable, Mapping

from lowering.machine.kernels.listing import PlanOptions
from lowering.machine.target import IPU2, Target
from lowering.machine.transfers.collectives import Method
from lowering.machine.transfers.exchanges import Host
from lowering.machine.transfers.links import inter_ipu_cycles, route
from lowering.ops.tasks import TaskSpec

_NO_OPTIONS = PlanOptions()
_DTYPES = {"half": "float16", "float": "float32"}


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings of the machine model.

    Attributes:
      target: the chip.
      plans: what the planner is told where no stage says otherwise.
      compiles_code: whether code is compiled (`IPUConfig.ipu_model.compile_ipu_code`); otherwise
        nobody knows how large it is, and it takes no memory.
      outlines: whether equal operations share their code
        (`IPUConfig.optimizations.enable_graph_outlining`).
      reorders: whether operations come in an order that has less alive at a time
        (`IPUConfig.scheduling.algorithm`); otherwise in the function's.
      io_tiles: how many tiles of each IPU are set apart for queues; what they hold is not counted.
      overlaps_io: whether these read and feed queues beside the others' compute.
      io_proportion: the share of their memory that elements may fill
        (`IPUConfig.io_tiles.available_memory_proportion`); where they need more, an IPU's queues go
        without these tiles. None: they always fit.
      merged_copy_bytes: up to how many bytes the arrays of a copy between two IPUs, outside of
        pipelines, share an exchange
        (`IPUConfig.optimizations.maximum_inter_ipu_copies_buffer_size`).
      merged_host_bytes: the same for what goes to and from calls and tables of the host
        (`IPUConfig.optimizations.maximum_send_recv_cluster_size`).
      merges_infeeds: whether the arrays of an infeed's element share an exchange
        (`IPUConfig.optimizations.merge_infeed_io_copies`).
      tables_are_remote: whether tables of the host are in streaming memory
        (`IPUConfig.experimental.enable_remote_buffer_embedding`).
      merges_remote: whether remote buffers of one shape share the code of their transfers
        (`IPUConfig.optimizations.merge_remote_buffers`).
      merged_bytes: up to how many bytes all-reduces are merged
        (`IPUConfig.optimizations.maximum_cross_replica_sum_buffer_size`).
      merged_scatter_bytes: the same of reduce-scatters over all replicas
        (`IPUConfig.optimizations.maximum_reduce_scatter_buffer_size`).
      ring_method: the way of collectives around rings (`IPUConfig.gcl_poplar_options`).
      ladder: the place of each IPU on the ladder of links (`IPUConfig.selection_order`), those of
        the first replica first; (): as they are numbered.
      synthetic: what is made up on the device instead of passing to or from the host, of "infeed",
        "outfeed" and "hostembedding".
      donated: positions of the arguments that the caller gives away (`donate_argnums`): results of
        their shape and dtype take their places.
    """

    target: Target = IPU2
    plans: PlanOptions = _NO_OPTIONS
    compiles_code: bool = True
    outlines: bool = True
    reorders: bool = True
    io_tiles: int = 0
    overlaps_io: bool = False
    io_proportion: float | None = None
    tables_are_remote: bool = False
    merges_remote: bool = True
    merged_bytes: int = 0
    merged_scatter_bytes: int = 0
    merged_copy_bytes: int = 0
    merged_host_bytes: int = 0
    merges_infeeds: bool = False
    ring_method: Method = "auto"
    ladder: tuple[int, ...] = ()
    synthetic: frozenset[str] = frozenset()
    donated: tuple[int, ...] = ()

    @property
    def compute_target(self) -> Target:
        """The chip without its I/O tiles."""
        tiles = self.target.tiles_per_ipu - self.io_tiles
        return dc.replace(self.target, tiles_per_ipu=tiles) if self.io_tiles else self.target

    @property
    def io_bytes(self) -> float:
        """How much of elements an IPU's I/O tiles may hold."""
        if self.io_proportion is None:
            return math.inf
        return self.io_proportion * self.io_tiles * self.target.bytes_per_tile

    @property
    def host(self) -> Host:
        """The host, as this chip sees it."""
        return Host(
            target=self.target,
            asks_tables="hostembedding" not in self.synthetic,
            tables_are_remote=self.tables_are_remote,
            merged_bytes=self.merged_host_bytes,
        )

    def between(self, flows: Iterable[tuple[int, int, float]]) -> int:
        """Cycles of an exchange between IPUs, its syncs not counted.

        Args:
          flows: (source, target, bytes), all at the same time.
        """
        placed = [(self._place(source), self._place(end), sent) for source, end, sent in flows]
        return inter_ipu_cycles(self.target, placed)

    def passed(self, source: int, target: int) -> int:
        """How many IPUs data passes on its way from one to another."""
        return len(route(self._place(source), self._place(target))) - 1

    def _place(self, ipu: int) -> int:
        return self.ladder[ipu] if self.ladder else ipu


def plan_options(
    matmuls: Mapping[str, str], convolutions: Mapping[str, str], base: PlanOptions = _NO_OPTIONS
) -> PlanOptions:
    """What Poplar options say to the planner.

    Args:
      matmuls: options of matrix products; those that are not about plans are left out.
      convolutions: options of convolutions.
      base: what holds where these say nothing.
    """
    return dc.replace(
        base,
        matmul_proportion=_proportion(matmuls, base.matmul_proportion),
        convolution_proportion=_proportion(convolutions, base.convolution_proportion),
        matmul_partials=_partials(matmuls, base.matmul_partials),
        convolution_partials=_partials(convolutions, base.convolution_partials),
    )


def stage_options(spec: TaskSpec, base: PlanOptions) -> PlanOptions:
    """What the options of a pipeline stage say to the planner."""
    groups = {group: dict(pairs) for group, pairs in spec.options}
    matmuls, convolutions = (
        groups.get(f"{kind}_options", {}) for kind in ("matmul", "convolution")
    )
    return plan_options(matmuls, convolutions, base) if groups else base


def _proportion(options: Mapping[str, str], default: float | None) -> float | None:
    text = options.get("availableMemoryProportion")
    return default if text is None else float(text)


def _partials(options: Mapping[str, str], default: str | None) -> str | None:
    text = options.get("partialsType")
    return default if text is None else _DTYPES.get(text, text)
