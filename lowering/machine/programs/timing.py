"""When each IPU does what: one walk over a program, which also finds how its values lie."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

from lowering.ir.loops import Pipeline
from lowering.ir.program import (
    Copy,
    Execute,
    HostCall,
    Load,
    Node,
    Program,
    Repeat,
    Store,
    StreamIn,
    StreamOut,
    Switch,
    Task,
    While,
    walk,
)
from lowering.ir.program import Sequence as Steps
from lowering.machine import trace as tr
from lowering.machine.cost import Phase
from lowering.machine.kernels.fusing import fused
from lowering.machine.kernels.layouts import Laid, Layouts
from lowering.machine.kernels.listing import list_operations, marks_of, shape
from lowering.machine.kernels.model import model_kernel
from lowering.machine.kernels.scheduling import scheduled
from lowering.machine.kernels.supersteps import Supersteps, on_ipu
from lowering.machine.kernels.totals import KernelCost, Total
from lowering.machine.options import ModelOptions, stage_options
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.machine.profile import PipelineProfile
from lowering.machine.programs.names import SharedLayouts
from lowering.machine.programs.pipelines import Flow, TaskKey, run_pipeline
from lowering.machine.transfers.between_replicas import Collectives, all_reduced_bytes
from lowering.machine.transfers.collectives import all_gather_cycles
from lowering.machine.transfers.links import (
    external_sync_cycles,
    host_cycles,
    inter_ipu_cycles,
    remote_cycles,
)
from lowering.pipelines.task import Kind
from lowering.schedules import Phase as TaskPhase
from lowering.structure import structure_key
from lowering.units import HOST, IpuId, ValueId

_PHASES = {Kind.FORWARD: "fwd", Kind.UPDATE: "update"}  # any other: "bwd"

_TRANSFERS = "pipeline transfers"

Parts = list[tuple[int, tr.Trace]]


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """What the walk finds.

    Attributes:
      trace: what each IPU does when.
      cycles: from start to end.
      kernels: the cost of each `Execute`, by its identity.
      totals: where cycles go, by IPU and signature of the operation.
      pipeline: of the first pipeline.
      assumptions: what had to be assumed.
    """

    trace: tr.Trace
    cycles: int
    kernels: Mapping[int, KernelCost]
    totals: Mapping[tuple[int, object], Total]
    pipeline: PipelineProfile | None
    assumptions: tuple[str, ...]


def time_program(timer: Timer) -> Timing:
    """Walks a program from its first step to its last.

    Arguments are on their IPUs when a call begins and results stay there, as the original's
    variables did: their copies from and to the host take no time. What comes by queues does.
    """
    clock = timer.new_clock()
    parts = timer.sequence(timer.program.body, clock, 1.0)
    return Timing(
        trace=tr.group(parts),
        cycles=max(clock),
        kernels=timer.kernels,
        totals=timer.totals,
        pipeline=timer.pipeline,
        assumptions=tuple(timer.assumptions),
    )


class Timer:
    """One walk.

    A clock is a list: for each IPU, the cycle at which it is free; if there are I/O tiles, then for
    each IPU's the same.
    """

    def __init__(self, program: Program, options: ModelOptions) -> None:
        self.program, self.options, self.target = program, options, options.compute_target
        self.layouts = SharedLayouts(program)
        self.kernels: dict[int, KernelCost] = {}
        self.totals: dict[tuple[int, object], Total] = {}
        self.pipeline: PipelineProfile | None = None
        self.assumptions: dict[str, None] = {}
        self._known: dict[Any, KernelCost] = {}
        self._plans = [options.plans]
        self._linear: dict[int, Layouts] = {}
        self._sync = external_sync_cycles(self.target, program.ipus)
        calls = [node for node in program.body.steps if isinstance(node, HostCall)]
        called = {value for node in calls for value in (*node.reads, *node.writes)}
        constants = (value for value, _ in program.constants)
        self._resident = {*(set(program.outputs) - called), *program.inputs, *constants}
        self._on_host: dict[ValueId, int] = {}  # since when, for what calls read or make
        self._collectives = [
            Collectives(
                target=self.target,
                replicas=program.replicas,
                ipus_per_replica=program.ipus,
                merged_bytes=min(options.merged_bytes, _all_reduced(program, ipu)),
            )
            for ipu in range(program.ipus)
        ]

    def new_clock(self) -> list[int]:
        """All IPUs, free at cycle 0."""
        return [0] * (self.program.ipus * (2 if self.options.overlaps_io else 1))

    def sequence(self, body: Steps, clock: list[int], times: float) -> Parts:
        """Times steps; `times` is how often the whole of them runs in a call."""
        parts: Parts = []
        for node in body.steps:
            parts.extend(self._node(node, clock, times))
        return parts

    def _node(self, node: Node, clock: list[int], times: float) -> Parts:
        match node:
            case Execute():
                return self._execute(node, clock, times)
            case Copy():
                return self._copy(node, clock, times)
            case Load() | Store():
                return self._storage(node, clock, times)
            case StreamIn():
                bytes_ = sum(map(self._bytes, node.writes)) * (node.count or 1)
                return self._host(node.ipu, f"stream-in {node.queue.name}", bytes_, clock, times)
            case StreamOut():
                bytes_ = sum(map(self._bytes, node.reads)) * (node.count or 1)
                return self._host(node.ipu, f"stream-out {node.queue.name}", bytes_, clock, times)
            case HostCall():
                # The copies around it take the time that the IPUs see.
                self._assume(node.kernel.origin, f"the host's `{node.name}` takes no time")
                ready = max((self._on_host.get(value, 0) for value in node.reads), default=0)
                self._on_host.update(dict.fromkeys(node.writes, ready))
                return []
            case Task():
                return self._task(node, clock, times)
            case Repeat() if node.pipeline is not None:
                return self._pipeline(node, node.pipeline, clock, times)
            case Repeat():
                return self._repeat(node, clock, times)
            case While():
                self._assume(node.origin, "only values tell how often it runs; taken as once")
                parts = self.sequence(node.condition, clock, times)
                return [*parts, *self.sequence(node.body, clock, times)]
            case Switch():
                return self._switch(node, clock, times)
            case Steps():
                return self.sequence(node, clock, times)

    # Kernels

    def _execute(self, node: Execute, clock: list[int], times: float) -> Parts:
        given = tuple(self.layouts.get((value, node.ipu)) for value in node.reads)
        cost = self._kernel_cost(node, given)
        self.kernels[id(node)] = cost
        for value, laid in zip(node.reads, cost.operands, strict=True):
            self.layouts.settle((value, node.ipu), laid)
        start = clock[node.ipu]
        clock[node.ipu] += cost.cycles
        for signature, total in cost.totals.items():
            self._total(node.ipu, signature, total, times)
        self.assumptions.update(dict.fromkeys(cost.assumptions))
        parts = [(start, on_ipu(cost.trace, node.ipu))]
        for value, laid in zip(node.writes, cost.results, strict=True):
            kept = self.layouts.settle((value, node.ipu), laid)
            if kept.order != laid.order:
                parts.append(self._moved(node.ipu, "rearrange", kept, clock, times))
        return parts

    def _kernel_cost(self, node: Execute, given: tuple[Laid | None, ...]) -> KernelCost:
        plans = self._plans[-1]
        jaxpr = node.kernel.jaxpr
        replicas = self._collectives[node.ipu]
        key = (structure_key(jaxpr), marks_of(jaxpr.jaxpr), given, plans, replicas)
        if key not in self._known:
            listing = fused(list_operations(node.kernel.jaxpr, plans), ELEMENTWISE.__contains__)
            listing = scheduled(listing, VIEWS.__contains__)
            self._known[key] = model_kernel(listing, given, self.target, replicas)
        return self._known[key]

    def _total(self, ipu: int, signature: object, total: Total, times: float) -> None:
        known = self.totals.setdefault((ipu, signature), total.none_yet())
        known.add(total, times)

    def laid(self, value: ValueId, ipu: IpuId) -> Laid:
        """How a value lies; one that no kernel has asked for is linear."""
        known = self.layouts.get((value, ipu))
        if known is not None:
            return known
        tiles = self.target.tiles_per_ipu
        linear = self._linear.setdefault(ipu, Layouts((), (), (), tiles))
        return self.layouts.settle((value, ipu), linear.linear(shape(self.program.avals[value])))

    def _moved(
        self, ipu: int, name: str, laid: Laid, clock: list[int], times: float
    ) -> tuple[int, tr.Trace]:
        steps = Supersteps(self.target)
        steps.run(name, (Phase("copy", 0.0, laid.mapping.most_bytes),), 1)
        total = Total(name, runs=1, cycles=steps.clock, exchange_cycles=steps.exchange)
        self._total(ipu, name, total, times)
        start, clock[ipu] = clock[ipu], clock[ipu] + steps.clock
        return start, on_ipu(steps.trace(), ipu)

    # Transfers

    def _bytes(self, value: ValueId) -> int:
        return shape(self.program.avals[value]).bytes

    def _row(
        self, ipu: int, kind: str, name: str, cycles: int, clock: list[int], times: float
    ) -> Parts:
        """One step of one IPU."""
        if not cycles:
            return []
        start, clock[ipu] = clock[ipu], clock[ipu] + cycles
        self._total(ipu, name, Total(name, runs=1, cycles=cycles), times)
        return [(start, tr.block([(ipu, kind, name, 0, cycles)]))]

    def _host(self, ipu: int, name: str, bytes_: int, clock: list[int], times: float) -> Parts:
        """A queue: I/O tiles take elements early and send them late, beside the others' compute."""
        cycles = host_cycles(self.target, bytes_)
        if not self.options.overlaps_io:
            return self._row(ipu, "host", name, cycles, clock, times)
        own = clock[self.program.ipus :]
        parts = self._row(ipu, "host", name, cycles, own, times)
        clock[self.program.ipus :] = own
        return parts

    def _copy(self, node: Copy, clock: list[int], times: float) -> Parts:
        if HOST in (node.source, node.target):
            moved = [value for value in node.values if value not in self._resident]
            ipu = node.target if node.source == HOST else node.source
            cycles = host_cycles(self.target, sum(map(self._bytes, moved)))
            if node.source == HOST:
                clock[ipu] = max(clock[ipu], *(self._on_host.get(value, 0) for value in moved), 0)
            parts = self._row(ipu, "host", "host copy", cycles, clock, times)
            if node.target == HOST:
                self._on_host.update(dict.fromkeys(moved, clock[ipu]))
            return parts
        pair = (node.source, node.target)
        start = max(clock[ipu] for ipu in pair)
        clock[node.source] = clock[node.target] = start
        name = f"copy {node.source} -> {node.target}"
        flow = (node.source, node.target, sum(map(self._bytes, node.values)))
        cycles = inter_ipu_cycles(self.target, [flow])
        parts: Parts = []
        for ipu in pair:
            parts += self._row(ipu, "sync", f"{name}/sync", self._sync, clock, times)
            parts += self._row(ipu, "inter_ipu", name, cycles, clock, times)
        return parts

    def _storage(self, node: Load | Store, clock: list[int], times: float) -> Parts:
        if self._stays_outside(node):
            return []
        bytes_, replicas = self._bytes(node.value), self.program.replicas
        slice_ = -(-bytes_ // replicas) if node.storage.sharded else bytes_
        word = "load" if isinstance(node, Load) else "store"
        parts: Parts = []
        if node.storage.remote:
            cycles = remote_cycles(self.target, slice_)
            parts += self._row(node.ipu, "remote", f"remote {word}", cycles, clock, times)
        if node.storage.sharded and isinstance(node, Load):
            cycles = all_gather_cycles(self.target, bytes_, replicas, self.program.ipus)
            parts += self._row(node.ipu, "inter_ipu", "all-gather", cycles, clock, times)
        return parts

    def _stays_outside(self, node: Load | Store) -> bool:
        """Whether a stored argument, or a result, only passes between the host and its store."""
        return node.value in self._resident

    # Control

    def _assume(self, origin: str, what: str) -> None:
        self.assumptions[f"{origin or 'a loop'}: {what}"] = None

    def _repeat(self, node: Repeat, clock: list[int], times: float) -> Parts:
        count = node.count
        if count is None:
            self._assume(node.origin, "only values tell how often it runs; taken as once")
            count = 1
        inside = self.new_clock()
        parts = self.sequence(node.body, inside, times * count)
        for sliced in node.slices:
            laid = self.laid(sliced.element, sliced.ipu)
            parts.append(self._moved(sliced.ipu, "slice", laid, inside, times * count))
        for stack in node.stacks:
            laid = self.laid(stack.element, stack.ipu)
            parts.append(self._moved(stack.ipu, "stack", laid, inside, times * count))
        for carry in node.carry:
            entering = self.laid(carry.entering, carry.ipu)
            if self.laid(carry.leaving, carry.ipu).order != entering.order:
                name = "rearrange loop variable"
                parts.append(self._moved(carry.ipu, name, entering, inside, times * count))
        period, start = max(inside), max(clock)
        clock[:] = [start + period * count] * len(clock)
        return [(start, tr.loop(tr.group(parts), count, period))]

    def _switch(self, node: Switch, clock: list[int], times: float) -> Parts:
        """The slowest branch."""
        ways: list[tuple[list[int], Parts, dict[tuple[int, object], Total]]] = []
        totals = self.totals
        for branch in node.branches:
            after, self.totals = list(clock), {}
            parts = self.sequence(branch.body, after, times)
            ways.append((after, parts, self.totals))
        self.totals = totals
        clock[:], parts, spent = max(ways, key=lambda way: max(way[0]))
        for (ipu, title), total in spent.items():
            self._total(ipu, title, total, 1.0)
        return parts

    # Pipelines

    def _task(self, node: Task, clock: list[int], times: float) -> Parts:
        trace, cycles = self._task_trace(node, times)
        start = max(clock)
        clock[:] = [start + cycles] * len(clock)
        stage = [max(node.spec.stage, tr.NONE)]
        phase = [_PHASES.get(node.spec.kind, "bwd")]
        return [(start, tr.tasks([trace], [0], [0], stage, [tr.NONE], phase))]

    def _task_trace(self, node: Task, times: float) -> tuple[tr.Trace, int]:
        self._plans.append(stage_options(node.spec, self._plans[-1]))
        clock = self.new_clock()
        parts = self.sequence(node.body, clock, times)
        self._plans.pop()
        return tr.group(parts), max(clock)

    def _pipeline(self, node: Repeat, pipeline: Pipeline, clock: list[int], times: float) -> Parts:
        schedule = pipeline.schedule
        inside = times * schedule.micro_batches
        bodies: dict[TaskKey, tuple[tr.Trace, int]] = {}
        flows: dict[TaskKey, list[Flow]] = {}
        key: TaskKey | None = None
        before: Parts = []
        for step in node.body.steps:
            match step:
                case Task():
                    key = (step.spec.stage, TaskPhase(step.spec.kind.value))
                    bodies[key] = self._task_trace(step, inside)
                case Copy() if key is not None and HOST not in (step.source, step.target):
                    flow = (step.source, step.target, sum(map(self._bytes, step.values)))
                    flows.setdefault(key, []).append(flow)
                case _:
                    before += self._node(step, clock, times)
        run = run_pipeline(schedule, bodies, flows, self.target, self.program.ipus)
        start = max(clock)
        clock[:] = [start + run.profile.cycles] * len(clock)
        for ipu, cycles in run.transfer_cycles.items():
            self._total(
                ipu, _TRANSFERS, Total(_TRANSFERS, runs=run.profile.ticks, cycles=cycles), times
            )
        if self.pipeline is None:
            self.pipeline = run.profile
        return [*before, (start, run.trace)]


def _all_reduced(program: Program, ipu: int) -> int:
    """Bytes of all-reduces in the kernels of an IPU; 0 if there is only one replica."""
    if program.replicas == 1:
        return 0
    kernels = (n.kernel for n in walk(program.body) if isinstance(n, Execute) and n.ipu == ipu)
    return sum(all_reduced_bytes(kernel.jaxpr.jaxpr) for kernel in kernels)
