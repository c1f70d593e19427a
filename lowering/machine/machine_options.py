"""The options of the machine model beside the program."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Iterable, Mapping

from lowering.machine.kernels.listing import PlanOptions
from lowering.machine.target import IPU2, Target
from lowering.machine.transfers.collective_cost import Method
from lowering.machine.transfers.exchange_code import ExchangeGoal
from lowering.machine.transfers.exchanges import HostLink
from lowering.machine.transfers.links import find_route, inter_ipu_cycles
from lowering.ops import TaskSpec

_NO_OPTIONS = PlanOptions()
_DTYPES = {"half": "float16", "float": "float32"}


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings of the machine model.

    Attributes:
      target: the chip.
      plans: the options of the planner for stages without options of their own.
      compiles_code: whether code is compiled (`IPUConfig.ipu_model.compile_ipu_code`); otherwise
        its size is unknown, and it takes no memory.
      exchange_goal: what the code of exchanges is compiled for (Poplar's
        `opt.internalExchangeOptimisationTarget`).
      outlines: whether equal operations share their code
        (`IPUConfig.optimizations.enable_graph_outlining`).
      reorders: whether operations come in an order that has less alive at a time
        (`IPUConfig.scheduling.algorithm`); otherwise in the function's.
      io_tiles: how many tiles of each IPU are reserved for queues; their contents are not counted.
      overlaps_io: whether these read and feed queues beside the others' compute.
      io_proportion: the share of their memory that elements may fill
        (`IPUConfig.io_tiles.available_memory_proportion`); where they need more, an IPU's queues go
        without these tiles. None: they always fit.
      merged_copy_bytes: up to how many bytes the arrays of a copy between two IPUs, outside of
        pipelines, share an exchange
        (`IPUConfig.optimizations.maximum_inter_ipu_copies_buffer_size`).
      merged_host_bytes: the same for data of calls and tables of the host
        (`IPUConfig.optimizations.maximum_send_recv_cluster_size`).
      merges_infeeds: whether the arrays of an infeed's element share an exchange
        (`IPUConfig.optimizations.merge_infeed_io_copies`).
      tables_are_remote: whether tables of the host are in streaming memory
        (`IPUConfig.experimental.enable_remote_buffer_embedding`).
      merges_remote: whether remote buffers of one shape share the code of their transfers
        (`IPUConfig.optimizations.merge_remote_buffers`).
      merged_bytes: up to how many bytes all-reduces are merged
        (`IPUConfig.optimizations.maximum_cross_replica_sum_buffer_size`).
      merged_scatter_bytes: the same for reduce-scatters over all replicas
        (`IPUConfig.optimizations.maximum_reduce_scatter_buffer_size`).
      ring_method: the way of collectives around rings (`IPUConfig.gcl_poplar_options`).
      ladder: the place of each IPU on the ladder of links (`IPUConfig.selection_order`), those of
        the first replica first; (): as they are numbered.
      synthetic: the transfers with the host that the device makes up, of "infeed", "outfeed" and
        "hostembedding".
      donated: positions of the arguments that the caller gives away (`donate_argnums`): results of
        their shape and dtype take their places.
    """

    target: Target = IPU2
    plans: PlanOptions = _NO_OPTIONS
    compiles_code: bool = True
    exchange_goal: ExchangeGoal = "cycles"
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
        """The bytes of elements that an IPU's I/O tiles may hold."""
        if self.io_proportion is None:
            return math.inf
        return self.io_proportion * self.io_tiles * self.target.bytes_per_tile

    @property
    def host(self) -> HostLink:
        """The link to the host, as this chip sees it."""
        return HostLink(
            target=self.target,
            asks_tables="hostembedding" not in self.synthetic,
            tables_are_remote=self.tables_are_remote,
            merged_bytes=self.merged_host_bytes,
        )

    def cycles_between_ipus(self, flows: Iterable[tuple[int, int, float]]) -> int:
        """Returns the cycles of an exchange between IPUs, its syncs not counted.

        Args:
          flows: (source, target, bytes), all at the same time.
        """
        flows_on_ladder = [
            (self._position_on_ladder(source), self._position_on_ladder(end), sent)
            for source, end, sent in flows
        ]
        return inter_ipu_cycles(self.target, flows_on_ladder, len(self.ladder))

    def count_passed_ipus(self, source: int, target: int) -> int:
        """Counts the IPUs that data passes on its way from one to another."""
        places = self._position_on_ladder(source), self._position_on_ladder(target)
        return len(find_route(*places, len(self.ladder))) - 1

    def _position_on_ladder(self, ipu: int) -> int:
        return self.ladder[ipu] if self.ladder else ipu


def planner_options_from_poplar(
    matmuls: Mapping[str, str], convolutions: Mapping[str, str], base: PlanOptions = _NO_OPTIONS
) -> PlanOptions:
    """Returns the planner's options from Poplar options.

    Args:
      matmuls: options of matrix products; those that are not about plans are left out.
      convolutions: options of convolutions.
      base: the options that hold where these say nothing.
    """
    return dc.replace(
        base,
        matmul_proportion=_memory_proportion_of(matmuls, base.matmul_proportion),
        convolution_proportion=_memory_proportion_of(convolutions, base.convolution_proportion),
        matmul_partials=_partials_dtype_of(matmuls, base.matmul_partials),
        convolution_partials=_partials_dtype_of(convolutions, base.convolution_partials),
    )


def plan_options_of_stage(spec: TaskSpec, base: PlanOptions) -> PlanOptions:
    """Returns the planner's options of a pipeline stage."""
    groups = {group: dict(pairs) for group, pairs in spec.options}
    matmuls, convolutions = (
        groups.get(f"{kind}_options", {}) for kind in ("matmul", "convolution")
    )
    return planner_options_from_poplar(matmuls, convolutions, base) if groups else base


def _memory_proportion_of(options: Mapping[str, str], default: float | None) -> float | None:
    text = options.get("availableMemoryProportion")
    return default if text is None else float(text)


def _partials_dtype_of(options: Mapping[str, str], default: str | None) -> str | None:
    text = options.get("partialsType")
    return default if text is None else _DTYPES.get(text, text)
