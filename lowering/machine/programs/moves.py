"""Moves of data between IPUs, the host and streaming memory, and between tiles of an IPU."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering import ir
from lowering.ground import HOST, IpuId, ValueId
from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import shape_of_aval
from lowering.machine.kernels.supersteps import Supersteps
from lowering.machine.machine_options import ModelOptions
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.program_tree import NodeKind
from lowering.machine.programs.cycle_account import CycleAccount
from lowering.machine.programs.line_costs import MoveOrigin, ValueMakers
from lowering.machine.programs.remote_storage import STREAMING_MEMORY_MOVES
from lowering.machine.programs.timed_part import TimedPart, join_parts
from lowering.machine.transfers import links
from lowering.machine.transfers.collective_cost import all_gather_cycles
from lowering.machine.transfers.exchanges import merge_exchanges

IpuClock: TypeAlias = list[int]
"""The cycle at which each IPU is free, and then, if there are I/O tiles, that of each IPU's."""

_Step: TypeAlias = tuple[str, str, int, int]
"""One step of an IPU: its kind, name, cycles, and the bytes that it moves."""


class MoveTimer:
    """A timer of moves; each advances the clock of its IPUs.

    Args:
      program: the program.
      options: the chip, and whether I/O tiles work beside the others.
      account: the account that they are added to.
      makers: the makers of the values that move.
    """

    def __init__(
        self, program: ir.Program, options: ModelOptions, account: CycleAccount, makers: ValueMakers
    ) -> None:
        self._program, self._options, self._account = program, options, account
        self._target = options.compute_target
        self._sync = links.external_sync_cycles(self._target, program.ipus)
        self._makers = makers
        calls = [node for node in program.body.steps if isinstance(node, ir.HostCall)]
        values_of_calls = {value for node in calls for value in (*node.reads, *node.writes)}
        constants = (value for value, _ in program.constants)
        self._resident = {*(set(program.outputs) - values_of_calls), *program.inputs, *constants}
        self._element_bytes = [0] * program.ipus
        for node in ir.walk_nodes(program.body):
            if isinstance(node, (ir.StreamIn, ir.StreamOut)):
                self._element_bytes[node.ipu] += sum(self._queue_array_bytes(node))
        self._timed_steps: dict[Hashable, TimedPart] = {}
        self._on_host: dict[ValueId, int] = {}  # since when, for operands and results of calls

    @property
    def overfull_io_ipus(self) -> Mapping[int, int]:
        """The IPUs whose queues pass more at once than I/O tiles can hold, and their bytes."""
        limit = self._options.io_bytes if self._options.overlaps_io else math.inf
        return {
            ipu: queue_bytes
            for ipu, queue_bytes in enumerate(self._element_bytes)
            if queue_bytes > limit
        }

    def _queue_array_bytes(self, node: ir.StreamIn | ir.StreamOut) -> list[int]:
        """Returns the bytes of each array that goes through a queue at once; none if synthetic."""
        is_infeed = isinstance(node, ir.StreamIn)
        if ("infeed" if is_infeed else "outfeed") in self._options.synthetic:
            return []
        sizes = self._bytes_of_each(node.writes if is_infeed else node.reads)
        return [size * (node.count or 1) for size in sizes]

    def total_bytes_of(self, values: Iterable[ValueId]) -> int:
        """Returns the bytes of values of the program together."""
        return sum(self._bytes_of_each(values))

    def _bytes_of_each(self, values: Iterable[ValueId]) -> list[int]:
        return [shape_of_aval(self._program.avals[value]).bytes for value in values]

    def move_between_tiles(
        self,
        ipu: IpuId,
        name: str,
        value: ValueId,
        origin: str,
        layout: TensorLayout,
        clock: IpuClock,
    ) -> TimedPart:
        """Moves a tensor from tile to tile, so that it has this layout."""
        phase = Phase("copy", 0.0, layout.mapping.most_bytes)
        move_origin = self._makers.find_move_origin([value], origin=origin)
        return self._time_superstep(ipu, name, move_origin, phase, layout, clock)

    def copy_view_to_output(
        self, ipu: IpuId, value: ValueId, layout: TensorLayout, moves: bool, clock: IpuClock
    ) -> TimedPart:
        """Copies a view of another tensor to a variable with this layout."""
        most_bytes = layout.mapping.most_bytes
        phase = Phase("OnTileCopy", most_bytes / VECTOR_BYTES, most_bytes if moves else 0.0)
        return self._time_superstep(
            ipu, "output", self._makers.find_move_origin([value]), phase, layout, clock
        )

    def _time_superstep(
        self,
        ipu: IpuId,
        name: str,
        move_origin: MoveOrigin,
        phase: Phase,
        layout: TensorLayout,
        clock: IpuClock,
    ) -> TimedPart:
        """Times one superstep of one IPU, in which a tensor is read and written."""
        steps = Supersteps(self._target)
        total = move_origin.build_total(name, 2 * layout.mapping.total_bytes)
        number = self._account.numbers((name, *move_origin))
        with steps.count_for_total(total, number):
            steps.run_phases(name, move_origin.origin, (phase,))
        self._account.add_operation(ipu, number, total)
        start, clock[ipu] = clock[ipu], clock[ipu] + steps.clock
        nodes = tuple(dc.replace(node, ipu=ipu) for node in steps.nodes)
        return TimedPart(((start, tr.assign_to_ipu(steps.build_trace(), ipu)),), nodes)

    def time_queue(self, node: ir.StreamIn | ir.StreamOut, clock: IpuClock) -> TimedPart:
        """Times a queue; I/O tiles read and write elements beside the others' compute.

        Where they cannot hold the elements of all queues of an IPU, they do neither.
        Synthetic elements go nowhere.
        """
        is_infeed = isinstance(node, ir.StreamIn)
        kind: NodeKind = "stream_in" if is_infeed else "stream_out"
        name = f"{kind.replace('_', '-')} {node.queue.name}"
        sizes = self._queue_array_bytes(node)
        bytes_ = sum(sizes)
        merged = bytes_ if is_infeed and self._options.merges_infeeds else 0
        steps: list[_Step] = [
            ("host", name, self._options.host.host_transfer_cycles(sizes, merged), bytes_)
        ]
        move_origin = self._makers.find_move_origin(
            node.writes if is_infeed else node.reads, node, node.origin
        )
        if not self._options.overlaps_io or node.ipu in self.overfull_io_ipus:
            return self._time_steps(kind, name, move_origin, node.ipu, steps, clock)
        io_clock = clock[self._program.ipus :]
        part = self._time_steps(kind, name, move_origin, node.ipu, steps, io_clock)
        clock[self._program.ipus :] = io_clock
        return part

    def time_copy(self, node: ir.Copy, clock: IpuClock) -> TimedPart:
        """Times a copy between two IPUs, which wait for each other, or from or to the host."""
        if HOST in (node.source, node.target):
            return self._time_host_copy(node, clock)
        pair = (node.source, node.target)
        clock[node.source] = clock[node.target] = max(clock[ipu] for ipu in pair)
        name = f"copy {node.source} -> {node.target}"
        steps: list[_Step] = []
        for bytes_ in merge_exchanges(
            self._bytes_of_each(node.values), self._options.merged_copy_bytes
        ):
            cycles = self._options.cycles_between_ipus([(*pair, bytes_)])
            steps.append(("sync", f"{name}/sync", self._sync, 0))
            steps.append(("inter_ipu", name, cycles, bytes_))
        move_origin = self._makers.find_move_origin(node.values, node)
        part_of_pair = join_parts(
            self._time_steps("copy", name, move_origin, ipu, steps, clock) for ipu in pair
        )
        return TimedPart(
            part_of_pair.traces,
            tuple(dc.replace(node, ipu=None) for node in part_of_pair.nodes[:1]),
        )

    def _time_host_copy(self, node: ir.Copy, clock: IpuClock) -> TimedPart:
        moved_values = [value for value in node.values if value not in self._resident]
        ipu = node.target if node.source == HOST else node.source
        if node.source == HOST:
            clock[ipu] = max(
                clock[ipu], *(self._on_host.get(value, 0) for value in moved_values), 0
            )
        cycles = self._options.host.host_transfer_cycles(self._bytes_of_each(moved_values))
        steps: list[_Step] = [("host", "host copy", cycles, self.total_bytes_of(moved_values))]
        move_origin = self._makers.find_move_origin(moved_values, node)
        part = self._time_steps("copy", "host copy", move_origin, ipu, steps, clock)
        if node.target == HOST:
            self._on_host.update(dict.fromkeys(moved_values, clock[ipu]))
        return part

    def time_host_call(self, node: ir.HostCall) -> TimedPart:
        """Times a call of the host, whose copies take all the time that the IPUs see."""
        ready = max((self._on_host.get(value, 0) for value in node.reads), default=0)
        self._on_host.update(dict.fromkeys(node.writes, ready))
        return TimedPart().wrap_in_node("host_call", node.name, node.kernel.origin, 0)

    def time_storage_move(self, node: ir.Load | ir.Store, clock: IpuClock) -> TimedPart:
        """Times a move to or from streaming memory, or between replicas that share a value.

        A stored argument, or a result, only passes between the host and its store.
        """
        if node.value in self._resident:
            return TimedPart()
        bytes_, replicas = self.total_bytes_of([node.value]), self._program.num_local_replicas
        slice_bytes = -(-bytes_ // replicas) if node.storage.sharded else bytes_
        kind: NodeKind = "load" if isinstance(node, ir.Load) else "store"
        steps: list[_Step] = []
        if node.storage.remote:
            cycles = links.remote_memory_cycles(self._target, slice_bytes)
            steps.append(("remote", STREAMING_MEMORY_MOVES[kind], cycles, slice_bytes))
        if node.storage.sharded and isinstance(node, ir.Load):
            method, ipus = self._options.ring_method, self._program.ipus
            cycles = all_gather_cycles(self._target, bytes_, replicas, ipus, method=method)
            steps.append(("inter_ipu", "all-gather", cycles, bytes_))
        name = steps[0][1] if steps else kind
        move_origin = self._makers.find_move_origin((node.value, node.kept), node)
        return self._time_steps(kind, name, move_origin, node.ipu, steps, clock)

    def _time_steps(
        self,
        kind: NodeKind,
        name: str,
        move_origin: MoveOrigin,
        ipu: IpuId,
        steps: Sequence[_Step],
        clock: IpuClock,
    ) -> TimedPart:
        """Times steps of one IPU, one after the other; returns nothing if they take no time."""
        rows: list[tr.Row] = []
        total_cycles = 0
        for step_kind, title, cycles, bytes_ in steps:
            if cycles:
                number = self._account.numbers((title, *move_origin))
                rows.append(
                    (ipu, step_kind, title, move_origin.origin, total_cycles, cycles, number)
                )
                total = move_origin.build_total(title, bytes_, cycles)
                total.remote_bytes = bytes_ if step_kind == "remote" else 0.0
                self._account.add_operation(ipu, number, total)
                total_cycles += cycles
        if not rows:
            return TimedPart()
        start, clock[ipu] = clock[ipu], clock[ipu] + total_cycles
        key = kind, name, tuple(rows)  # moves of many arrays take the same steps
        if key not in self._timed_steps:
            part = TimedPart(((0, tr.build_block(rows)),))
            self._timed_steps[key] = part.wrap_in_node(
                kind, name, move_origin.origin, total_cycles, ipu
            )
        return self._timed_steps[key].start_at(start)
