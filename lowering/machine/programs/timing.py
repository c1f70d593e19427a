"""When each IPU does what: one walk over a program, which also finds how its values lie."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Generator, Mapping, Sequence

from lowering import ir
from lowering.equations import walk
from lowering.errors import InternalError
from lowering.machine import trace as tr
from lowering.machine.kernels.fusing import fused
from lowering.machine.kernels.iterations import Ran, iterations, looped
from lowering.machine.kernels.layouts import Laid, Layouts
from lowering.machine.kernels.listing import list_operations, marks_of, shape
from lowering.machine.kernels.model import model_kernel
from lowering.machine.kernels.scheduling import scheduled
from lowering.machine.kernels.side_by_side import side_by_side
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.options import ModelOptions, stage_options
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.machine.profile import PipelineProfile
from lowering.machine.program_tree import ProgramNode
from lowering.machine.programs.account import Account, Totals
from lowering.machine.programs.counters import counted
from lowering.machine.programs.lines import Makers, lines_of
from lowering.machine.programs.moves import Clock, Moves
from lowering.machine.programs.names import SharedLayouts
from lowering.machine.programs.part import Part, joined
from lowering.machine.programs.pipelines import TRANSFERS, Body, Flow, run_pipeline
from lowering.machine.programs.storing import kept_places
from lowering.machine.programs.timeline import TaskKind, bodies_of
from lowering.machine.programs.updates import Updates
from lowering.machine.transfers.between_replicas import Collectives, Sum, summed_bytes
from lowering.ops.tasks import Kind
from lowering.schedules import Phase as TaskPhase
from lowering.structure import structure_key
from lowering.units import HOST, IpuId, ValueId

_PHASES = {Kind.FORWARD: "fwd", Kind.UPDATE: "update"}  # any other: "bwd"


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """What the walk finds.

    Attributes:
      trace: what each IPU does when.
      tree: the program as a tree.
      cycles: from start to end.
      kernels: the cost of each `Execute`, by its identity.
      totals: where cycles go, by IPU and number of the operation.
      pipeline: of the first pipeline.
      assumptions: what had to be assumed.
    """

    trace: tr.Trace
    tree: ProgramNode
    cycles: int
    kernels: Mapping[int, KernelCost]
    totals: Totals
    pipeline: PipelineProfile | None
    assumptions: tuple[str, ...]


def time_program(timer: Timer) -> Timing:
    """Walks a program from its first step to its last.

    Arguments are on their IPUs when a call begins and results stay there, as the original's
    variables did: their copies from and to the host take no time. What comes by queues does.
    """
    clock = timer.new_clock()
    whole = timer.sequence(timer.program.body, clock)
    (tree,) = whole.under("sequence", timer.program.name, "", max(clock)).nodes
    return Timing(
        trace=tr.group(whole.traces),
        tree=tree,
        cycles=max(clock),
        kernels=timer.kernels,
        totals=timer.account.totals,
        pipeline=timer.pipeline,
        assumptions=(*_of_io_tiles(timer), *timer.assumptions),
    )


def _of_io_tiles(timer: Timer) -> list[str]:
    """On which IPUs queues do without I/O tiles, which cannot hold so much."""
    options = timer.options
    return [
        f"IPU {ipu}: its queues pass {held} bytes at once and go without its {options.io_tiles} "
        f"I/O tiles, which may hold {options.io_bytes:.0f} (io_tiles.available_memory_proportion)"
        for ipu, held in timer.moves.overfull.items()
    ]


class Timer:
    """One walk."""

    def __init__(self, program: ir.Program, options: ModelOptions, updates: Updates) -> None:
        self.program, self.options, self.target = program, options, options.compute_target
        self.layouts = SharedLayouts(program, updates)
        self.kernels: dict[int, KernelCost] = {}
        self.account = Account()
        self.pipeline: PipelineProfile | None = None
        self.assumptions: dict[str, None] = {}
        self._makers = Makers(program)
        self.moves = Moves(program, options, self.account, self._makers)
        self._known: dict[object, KernelCost] = {}
        self._counted = counted(program)
        self._turn: int | None = None
        self._kept = kept_places(program)
        self._outputs = frozenset(program.outputs)
        self._plans = [options.plans]
        self._linear: dict[int, Layouts] = {}
        self._collectives = [
            Collectives(
                target=self.target,
                replicas=program.replicas,
                ipus_per_replica=program.ipus,
                instances=program.instances,
                merged_bytes=min(options.merged_bytes, _summed(program, ipu, "all-reduce")),
                merged_scatter_bytes=min(
                    options.merged_scatter_bytes, _summed(program, ipu, "reduce-scatter")
                ),
                method=options.ring_method,
            )
            for ipu in range(program.ipus)
        ]

    def new_clock(self) -> Clock:
        """All IPUs, free at cycle 0."""
        return [0] * (self.program.ipus * (2 if self.options.overlaps_io else 1))

    def sequence(self, body: ir.Sequence, clock: Clock) -> Part:
        """Times steps, and sets the clock forward."""
        return joined(self._node(node, clock) for node in body.steps)

    def _node(self, node: ir.Node, clock: Clock) -> Part:
        match node:
            case ir.Execute():
                return self._execute(node, clock)
            case ir.Copy():
                return self.moves.copy(node, clock)
            case ir.Load() | ir.Store():
                return self.moves.storage(node, clock)
            case ir.StreamIn() | ir.StreamOut():
                return self.moves.stream(node, clock)
            case ir.HostCall():
                self._assume(node.kernel.origin, f"the host's `{node.name}` takes no time")
                return self.moves.call(node)
            case ir.Task():
                return self._task(node, clock)
            case ir.Pipeline():
                return self._pipeline(node, clock)
            case ir.Repeat():
                return self._repeat(node, clock)
            case ir.While():
                return self._while(node, clock)
            case ir.Switch():
                return self._switch(node, clock)
            case ir.Sequence():
                return self.sequence(node, clock)
            case ir.Send() | ir.Receive():
                raise InternalError("the model times whole programs, not the part of a process")

    # Kernels

    def _execute(self, node: ir.Execute, clock: Clock) -> Part:
        operands = tuple(self.layouts.get((value, node.ipu)) for value in node.reads)
        cost = self._kernel_cost(node, operands)
        self.kernels[id(node)] = cost
        for value, laid in zip(node.reads, cost.operands, strict=True):
            self.layouts.settle((value, node.ipu), laid)
        start = clock[node.ipu]
        clock[node.ipu] += cost.cycles
        for number, total in cost.totals.items():
            self.account.add(node.ipu, number, total)
        self.assumptions.update(dict.fromkeys(cost.assumptions))
        origin = node.kernel.origin
        ran = Part(((start, tr.on(cost.trace, node.ipu)),), cost.nodes)
        parts = [ran.under("execute", _title(cost.nodes), origin, cost.cycles, node.ipu)]
        for i, (value, laid) in enumerate(zip(node.writes, cost.results, strict=True)):
            is_output = i in cost.views and value in self._outputs
            if is_output and laid.view:
                kept = self.laid(value, node.ipu)
            else:
                kept = self.layouts.settle((value, node.ipu), laid)
            moves = kept.order != laid.order
            if is_output:
                parts.append(self.moves.output(node.ipu, value, kept, moves, clock))
            elif moves:
                parts.append(self.moves.on_ipu(node.ipu, "rearrange", value, origin, kept, clock))
        return joined(parts)

    def _kernel_cost(self, node: ir.Execute, operands: tuple[Laid | None, ...]) -> KernelCost:
        """Kernels that are alike, lines included, are modelled once."""
        plans = self._plans[-1]
        closed = node.kernel.jaxpr
        replicas = self._collectives[node.ipu]
        directions = self._makers.directions.kernel(node)
        alike = (structure_key(closed), marks_of(closed.jaxpr), lines_of(closed.jaxpr))
        turns = self._counted.turns
        deciding = tuple(turns[id(e)].tobytes() for e in walk(closed) if id(e) in turns)
        turn = self._turn if deciding else None
        key = (*alike, directions, operands, plans, replicas, deciding, turn)
        if key not in self._known:
            listing = list_operations(closed, plans, turns=turns, directions=directions)
            listing = side_by_side(fused(listing, ELEMENTWISE.__contains__))
            if self.options.reorders:
                listing = scheduled(listing, VIEWS.__contains__)
            self._known[key] = model_kernel(
                listing,
                operands,
                self.target,
                replicas,
                host=self.options.host,
                turn=turn,
                numbers=self.account.numbers,
            )
        return self._known[key]

    def laid(self, value: ValueId, ipu: IpuId) -> Laid:
        """How a value lies; one that no kernel has asked for is linear."""
        known = self.layouts.get((value, ipu))
        if known is not None:
            return known
        tiles = self.target.tiles_per_ipu
        linear = self._linear.setdefault(ipu, Layouts((), (), (), tiles))
        return self.layouts.settle((value, ipu), linear.linear(shape(self.program.avals[value])))

    # Control

    def _assume(self, origin: str, what: str) -> None:
        self.assumptions[f"{origin or 'a loop'}: {what}"] = None

    def _repeat(self, node: ir.Repeat, clock: Clock) -> Part:
        count = node.count
        if count is None:
            self._assume(node.origin, "only values tell how often it runs; taken as once")
            count = 1
        kinds = iterations(self._counted.loops.get(id(node), ()), count)
        ran: list[Ran] = []
        for turn, times in kinds.kinds:
            inside = self.new_clock()
            with self.account.repeated(times), self._in_turn(turn):
                body = self._iteration(node, inside)
            ran.append(Ran(tr.group(body.traces), max(inside), body.nodes))
        sign = ProgramNode(kind="repeat", name="repeat", origin=node.origin, cycles=0)
        whole = looped(kinds, ran, sign)
        start = _together(clock, whole.cycles)
        return Part(((start, whole.trace),), whole.nodes)

    @contextlib.contextmanager
    def _in_turn(self, turn: int | None) -> Generator[None]:
        """What is modelled inside is in this iteration of the innermost loop."""
        before, self._turn = self._turn, turn
        yield
        self._turn = before

    def _iteration(self, node: ir.Repeat, clock: Clock) -> Part:
        """The body of a loop, and what its slices, stacks and variables need beside it."""
        body = self.sequence(node.body, clock)
        moves = [("slice", s.ipu, s.element, self.laid(s.element, s.ipu)) for s in node.slices]
        moves += [("stack", s.ipu, s.element, self.laid(s.element, s.ipu)) for s in node.stacks]
        for carry in node.carry:
            if (carry.entering, carry.ipu) in self._kept:
                continue
            entering = self.laid(carry.entering, carry.ipu)
            if self.laid(carry.leaving, carry.ipu).order != entering.order:
                moves.append(("rearrange loop variable", carry.ipu, carry.leaving, entering))
        moved = (
            self.moves.on_ipu(ipu, name, value, node.origin, laid, clock)
            for name, ipu, value, laid in moves
        )
        return joined([body, *moved])

    def _while(self, node: ir.While, clock: Clock) -> Part:
        self._assume(node.origin, "only values tell how often it runs; taken as once")
        before = list(clock)
        once = joined([self.sequence(node.condition, clock), self.sequence(node.body, clock)])
        return once.under("while", "while", node.origin, _between(before, clock))

    def _switch(self, node: ir.Switch, clock: Clock) -> Part:
        """The branch that is due, or if only values tell the slowest one."""
        before = list(clock)
        ways: list[tuple[Clock, Part, Totals]] = []
        for branch in node.branches:
            after = list(before)
            with self.account.apart() as totals:
                ways.append((after, self.sequence(branch.body, after), totals))
        taken = max(range(len(ways)), key=lambda i: max(ways[i][0]))
        turns = self._counted.turns.get(id(node))
        if turns is not None and self._turn is not None:
            taken = int(turns[self._turn])
        clock[:], part, totals = ways[taken]
        self.account.include(totals)
        branches = joined(
            way.under("sequence", f"branch {i}", "", _between(before, after)).times(int(i == taken))
            for i, (after, way, _) in enumerate(ways)
        )
        whole = Part(part.traces, branches.nodes)
        return whole.under("switch", "switch", node.origin, _between(before, clock))

    # Pipelines

    def _task(self, node: ir.Task, clock: Clock) -> Part:
        body = self._task_body(node)
        start = _together(clock, body.cycles)
        stage, phase = node.spec.stage, _PHASES.get(node.spec.kind, "bwd")
        name = phase if stage < 0 else f"stage {stage} {phase}"
        trace = tr.tasks([body.trace], [0], [0], [max(stage, tr.NONE)], [tr.NONE], [phase])
        return Part(((start, trace),), body.nodes).under("task", name, node.origin, body.cycles)

    def _task_body(self, node: ir.Task) -> Body:
        self._plans.append(stage_options(node.spec, self._plans[-1]))
        clock = self.new_clock()
        part = self.sequence(node.body, clock)
        self._plans.pop()
        return Body(tr.group(part.traces), max(clock), part.nodes, node.origin)

    def _pipeline(self, node: ir.Pipeline, clock: Clock) -> Part:
        schedule = node.schedule
        bodies: dict[TaskKind, Body] = {}
        flows: dict[TaskKind, list[Flow]] = {}
        key: TaskKind | None = None
        parts: list[Part] = []
        for step in node.body.steps:
            match step:
                case ir.Task():
                    key = (step.spec.stage, TaskPhase(step.spec.kind.value))
                    with self.account.repeated(schedule.micro_batches):
                        bodies[key] = self._task_body(step)
                case ir.Copy() if key is not None and HOST not in (step.source, step.target):
                    flow = (step.source, step.target, self.moves.bytes_of(step.values))
                    flows.setdefault(key, []).append(flow)
                case _:
                    parts.append(self._node(step, clock))
        for idle in bodies_of(schedule):  # a stage without gradients has no backward task
            bodies.setdefault(idle, Body(tr.group(()), 0))
        number = self.account.numbers(TRANSFERS)
        run = run_pipeline(schedule, bodies, flows, self.options, self.program.ipus, number)
        start = _together(clock, run.profile.cycles)
        for ipu, total in run.transfers.items():
            self.account.add(ipu, number, total)
        if self.pipeline is None:
            self.pipeline = run.profile
        ran = Part(((start, run.trace),), run.nodes)
        parts.append(ran.under("pipeline", node.name, node.origin, run.profile.cycles))
        return joined(parts)


def _together(clock: Clock, cycles: int) -> int:
    """All IPUs wait for each other, and for so long; gives when that began."""
    start = max(clock)
    clock[:] = [start + cycles] * len(clock)
    return start


def _title(nodes: Sequence[ProgramNode]) -> str:
    """What to call a kernel: its most expensive operation, and how many others there are."""
    if not nodes:
        return "kernel"
    name = max(nodes, key=lambda node: node.cycles * node.count).name
    return f"{name} and {len(nodes) - 1} more" if len(nodes) > 1 else name


def _between(before: Clock, after: Clock) -> int:
    """From when the first of the clocks that went forward started, to when the last stopped."""
    moved = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    return max((end for _, end in moved), default=0) - min((start for start, _ in moved), default=0)


def _summed(program: ir.Program, ipu: int, kind: Sum) -> int:
    """Bytes of all sums of a kind in the kernels of an IPU; 0 if there is only one replica."""
    if program.replicas == 1:
        return 0
    runs = (node for node in ir.walk(program.body) if isinstance(node, ir.Execute))
    return sum(summed_bytes(run.kernel.jaxpr.jaxpr, kind) for run in runs if run.ipu == ipu)
