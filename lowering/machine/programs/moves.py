"""What moves between IPUs, the host and streaming memory, and from tile to tile between kernels."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering import ir
from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.listing import shape
from lowering.machine.kernels.supersteps import Supersteps
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.options import ModelOptions
from lowering.machine.program_tree import NodeKind
from lowering.machine.programs.account import Account
from lowering.machine.programs.lines import Behind, Makers
from lowering.machine.programs.part import Part, joined
from lowering.machine.transfers import links
from lowering.machine.transfers.collectives import all_gather_cycles
from lowering.machine.transfers.exchanges import together
from lowering.units import HOST, IpuId, ValueId

Clock: TypeAlias = list[int]
"""For each IPU, the cycle at which it is free; if there are I/O tiles, for each IPU's the same."""

_Step: TypeAlias = tuple[str, str, int, int]
"""What one IPU does: kind, name, cycles, and bytes that it moves."""


class Moves:
    """Times moves on a clock, which they set forward.

    Args:
      program: the program.
      options: the chip, and whether I/O tiles work beside the others.
      account: what they are added to.
      makers: what is behind the values that move.
    """

    def __init__(
        self, program: ir.Program, options: ModelOptions, account: Account, makers: Makers
    ) -> None:
        self._program, self._options, self._account = program, options, account
        self._target = options.compute_target
        self._sync = links.external_sync_cycles(self._target, program.ipus)
        self._makers = makers
        calls = [node for node in program.body.steps if isinstance(node, ir.HostCall)]
        called = {value for node in calls for value in (*node.reads, *node.writes)}
        constants = (value for value, _ in program.constants)
        self._resident = {*(set(program.outputs) - called), *program.inputs, *constants}
        self._element_bytes = [0] * program.ipus
        for node in ir.walk(program.body):
            if isinstance(node, (ir.StreamIn, ir.StreamOut)):
                self._element_bytes[node.ipu] += sum(self._passing(node))
        self._on_host: dict[ValueId, int] = {}  # since when, for what calls read or make

    @property
    def overfull(self) -> Mapping[int, int]:
        """The IPUs whose queues pass more at once than I/O tiles may hold, and how many bytes."""
        limit = self._options.io_bytes if self._options.overlaps_io else math.inf
        return {ipu: held for ipu, held in enumerate(self._element_bytes) if held > limit}

    def _passing(self, node: ir.StreamIn | ir.StreamOut) -> list[int]:
        """Bytes of each array that goes through a queue at once; none where it is made up."""
        feeds = isinstance(node, ir.StreamIn)
        if ("infeed" if feeds else "outfeed") in self._options.synthetic:
            return []
        sizes = self._sizes(node.writes if feeds else node.reads)
        return [size * (node.count or 1) for size in sizes]

    def bytes_of(self, values: Iterable[ValueId]) -> int:
        """Of values of the program together."""
        return sum(self._sizes(values))

    def _sizes(self, values: Iterable[ValueId]) -> list[int]:
        return [shape(self._program.avals[value]).bytes for value in values]

    def on_ipu(
        self, ipu: IpuId, name: str, value: ValueId, origin: str, laid: Laid, clock: Clock
    ) -> Part:
        """A tensor moves from tile to tile, to lie like this, for what is at a line."""
        phase = Phase("copy", 0.0, laid.mapping.most_bytes)
        behind = self._makers.behind([value], origin=origin)
        return self._superstep(ipu, name, behind, phase, laid, clock)

    def output(self, ipu: IpuId, value: ValueId, laid: Laid, moves: bool, clock: Clock) -> Part:
        """A view of another tensor becomes a variable of its own, which lies like this."""
        most = laid.mapping.most_bytes
        phase = Phase("OnTileCopy", most / VECTOR_BYTES, most if moves else 0.0)
        return self._superstep(ipu, "output", self._makers.behind([value]), phase, laid, clock)

    def _superstep(
        self, ipu: IpuId, name: str, behind: Behind, phase: Phase, laid: Laid, clock: Clock
    ) -> Part:
        """One superstep of one IPU, in which a tensor is read and written."""
        steps = Supersteps(self._target)
        total = behind.total(name, 2 * laid.mapping.total_bytes)
        number = self._account.numbers((name, *behind))
        with steps.timed(total, number):
            steps.run(name, behind.origin, (phase,))
        self._account.add(ipu, number, total)
        start, clock[ipu] = clock[ipu], clock[ipu] + steps.clock
        nodes = tuple(dc.replace(node, ipu=ipu) for node in steps.nodes)
        return Part(((start, tr.on(steps.trace(), ipu)),), nodes)

    def stream(self, node: ir.StreamIn | ir.StreamOut, clock: Clock) -> Part:
        """A queue: I/O tiles take elements early and send them late, beside the others' compute.

        Where they cannot hold the elements of all queues of an IPU, they do neither.
        Synthetic elements go nowhere.
        """
        feeds = isinstance(node, ir.StreamIn)
        kind: NodeKind = "stream_in" if feeds else "stream_out"
        name = f"{kind.replace('_', '-')} {node.queue.name}"
        sizes = self._passing(node)
        bytes_ = sum(sizes)
        merged = bytes_ if feeds and self._options.merges_infeeds else 0
        steps: list[_Step] = [("host", name, self._options.host.cycles(sizes, merged), bytes_)]
        behind = self._makers.behind(node.writes if feeds else node.reads, node, node.origin)
        if not self._options.overlaps_io or node.ipu in self.overfull:
            return self._part(kind, name, behind, node.ipu, steps, clock)
        io_clock = clock[self._program.ipus :]
        part = self._part(kind, name, behind, node.ipu, steps, io_clock)
        clock[self._program.ipus :] = io_clock
        return part

    def copy(self, node: ir.Copy, clock: Clock) -> Part:
        """Between two IPUs, which wait for each other, or from or to the host."""
        if HOST in (node.source, node.target):
            return self._host_copy(node, clock)
        pair = (node.source, node.target)
        clock[node.source] = clock[node.target] = max(clock[ipu] for ipu in pair)
        name = f"copy {node.source} -> {node.target}"
        steps: list[_Step] = []
        for bytes_ in together(self._sizes(node.values), self._options.merged_copy_bytes):
            cycles = self._options.between([(*pair, bytes_)])
            steps.append(("sync", f"{name}/sync", self._sync, 0))
            steps.append(("inter_ipu", name, cycles, bytes_))
        behind = self._makers.behind(node.values, node)
        both = joined(self._part("copy", name, behind, ipu, steps, clock) for ipu in pair)
        return Part(both.traces, tuple(dc.replace(node, ipu=None) for node in both.nodes[:1]))

    def _host_copy(self, node: ir.Copy, clock: Clock) -> Part:
        moved = [value for value in node.values if value not in self._resident]
        ipu = node.target if node.source == HOST else node.source
        if node.source == HOST:
            clock[ipu] = max(clock[ipu], *(self._on_host.get(value, 0) for value in moved), 0)
        cycles = self._options.host.cycles(self._sizes(moved))
        steps: list[_Step] = [("host", "host copy", cycles, self.bytes_of(moved))]
        behind = self._makers.behind(moved, node)
        part = self._part("copy", "host copy", behind, ipu, steps, clock)
        if node.target == HOST:
            self._on_host.update(dict.fromkeys(moved, clock[ipu]))
        return part

    def call(self, node: ir.HostCall) -> Part:
        """The host works: the copies around it take the time that the IPUs see."""
        ready = max((self._on_host.get(value, 0) for value in node.reads), default=0)
        self._on_host.update(dict.fromkeys(node.writes, ready))
        return Part().under("host_call", node.name, node.kernel.origin, 0)

    def storage(self, node: ir.Load | ir.Store, clock: Clock) -> Part:
        """To or from streaming memory, or the replicas that share a value between them.

        A stored argument, or a result, only passes between the host and its store.
        """
        if node.value in self._resident:
            return Part()
        bytes_, replicas = self.bytes_of([node.value]), self._program.local_replicas
        slice_ = -(-bytes_ // replicas) if node.storage.sharded else bytes_
        kind: NodeKind = "load" if isinstance(node, ir.Load) else "store"
        steps: list[_Step] = []
        if node.storage.remote:
            cycles = links.remote_cycles(self._target, slice_)
            steps.append(("remote", f"remote {kind}", cycles, slice_))
        if node.storage.sharded and isinstance(node, ir.Load):
            method, ipus = self._options.ring_method, self._program.ipus
            cycles = all_gather_cycles(self._target, bytes_, replicas, ipus, method=method)
            steps.append(("inter_ipu", "all-gather", cycles, bytes_))
        name = steps[0][1] if steps else kind
        behind = self._makers.behind((node.value, node.kept), node)
        return self._part(kind, name, behind, node.ipu, steps, clock)

    def _part(
        self,
        kind: NodeKind,
        name: str,
        behind: Behind,
        ipu: IpuId,
        steps: Sequence[_Step],
        clock: Clock,
    ) -> Part:
        """Steps of one IPU, one after the other; nothing, if they take no time."""
        rows: list[tr.Row] = []
        spent = 0
        for what, title, cycles, bytes_ in steps:
            if cycles:
                number = self._account.numbers((title, *behind))
                rows.append((ipu, what, title, behind.origin, spent, cycles, number))
                self._account.add(ipu, number, behind.total(title, bytes_, cycles))
                spent += cycles
        if not rows:
            return Part()
        start, clock[ipu] = clock[ipu], clock[ipu] + spent
        return Part(((start, tr.block(rows)),)).under(kind, name, behind.origin, spent, ipu)
