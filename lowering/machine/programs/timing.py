"""The steps of each IPU over time: one walk over a program, which also finds all layouts."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Generator, Mapping, Sequence

from lowering import ir
from lowering.ground import HOST, InternalError, IpuId, ValueId
from lowering.machine import trace as tr
from lowering.machine.kernels.iterations import (
    IterationCost,
    classify_iterations,
    repeat_iterations,
)
from lowering.machine.kernels.known_kernels import KernelRun, KernelSettings, KnownKernels
from lowering.machine.kernels.layouts import Layouts, TensorLayout
from lowering.machine.kernels.listing import shape_of_aval
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.machine_options import ModelOptions, plan_options_of_stage
from lowering.machine.profile import PipelineProfile
from lowering.machine.program_tree import ProgramNode
from lowering.machine.programs.cycle_account import CycleAccount, Totals
from lowering.machine.programs.moves import IpuClock, MoveTimer
from lowering.machine.programs.pipeline_run import TRANSFERS, Flow, TaskBody, time_pipeline_schedule
from lowering.machine.programs.pipeline_timeline import TaskKind, list_stage_phase_pairs
from lowering.machine.programs.program_facts import ProgramFacts
from lowering.machine.programs.timed_part import TimedPart, join_parts
from lowering.machine.transfers.between_replicas import Collectives, Sum, bytes_of_replica_sums
from lowering.ops import TaskRole
from lowering.schedules import Phase as TaskPhase
from lowering.schedules import count_micro_batches, spread_copies

_PHASES = {TaskRole.FORWARD: "fwd", TaskRole.UPDATE: "update"}  # any other: "bwd"


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """The result of the walk over a program.

    Attributes:
      trace: the steps of each IPU.
      tree: the program as a tree.
      cycles: from start to end.
      kernels: the cost of each `Execute`, by its identity.
      totals: the cycles of operations, by IPU and number of the operation.
      pipeline: the profile of the first pipeline.
      assumptions: the assumptions of the model.
    """

    trace: tr.Trace
    tree: ProgramNode
    cycles: int
    kernels: Mapping[int, KernelCost]
    totals: Totals
    pipeline: PipelineProfile | None
    assumptions: tuple[str, ...]


def time_program(timer: ProgramTimer) -> Timing:
    """Times a program from its first step to its last.

    Arguments are on their IPUs when a call begins and results stay there, as the original's
    variables did: their copies from and to the host take no time. Queues do take time.
    """
    clock = timer.new_clock()
    program_part = timer.time_sequence(timer.program.body, clock)
    (tree,) = program_part.wrap_in_node("sequence", timer.program.name, "", max(clock)).nodes
    return Timing(
        trace=tr.group_traces(program_part.traces),
        tree=tree,
        cycles=max(clock),
        kernels=timer.kernels,
        totals=timer.account.totals,
        pipeline=timer.pipeline,
        assumptions=(*_list_assumptions_on_io_tiles(timer), *timer.assumptions),
    )


def _list_assumptions_on_io_tiles(timer: ProgramTimer) -> list[str]:
    """Returns the assumptions on IPUs whose queues do without I/O tiles, as these are too small."""
    options = timer.options
    return [
        f"IPU {ipu}: its queues pass {queue_bytes} bytes at once and go without its "
        f"{options.io_tiles} I/O tiles, which may hold {options.io_bytes:.0f} "
        "(io_tiles.available_memory_proportion)"
        for ipu, queue_bytes in timer.moves.overfull_io_ipus.items()
    ]


class ProgramTimer:
    """The state of one walk over a program that times it."""

    def __init__(
        self,
        facts: ProgramFacts,
        options: ModelOptions,
        known: KnownKernels | None = None,
    ) -> None:
        self.program = program = facts.program
        self.options, self.target = options, options.compute_target
        self._known = known or KnownKernels()
        self._settings = KernelSettings(
            self.target.as_seen_by_tiles,
            options.host,
            options.reorders,
        )
        self.layouts = facts.shared_layouts_with(options.donated).start_anew()
        self.kernels: dict[int, KernelCost] = {}
        self._timed_kernels: dict[tuple[int, IpuId, str], TimedPart] = {}
        self.account = CycleAccount(self._known.numbers)
        self.pipeline: PipelineProfile | None = None
        self.assumptions: dict[str, None] = {}
        self._makers = facts.makers
        self.moves = MoveTimer(program, options, self.account, self._makers)
        self._counted = facts.counted
        self._turn: int | None = None
        self._kept = facts.stored
        self._outputs = frozenset(program.outputs)
        self._plans = [options.plans]
        self._linear: dict[int, Layouts] = {}
        self._collectives = [
            Collectives(
                target=self.target,
                replicas=program.replicas,
                ipus_per_replica=program.ipus,
                instances=program.instances,
                merged_bytes=min(options.merged_bytes, _bytes_of_sums(program, ipu, "all-reduce")),
                merged_scatter_bytes=min(
                    options.merged_scatter_bytes, _bytes_of_sums(program, ipu, "reduce-scatter")
                ),
                method=options.ring_method,
            )
            for ipu in range(program.ipus)
        ]

    def new_clock(self) -> IpuClock:
        """Returns a clock in which all IPUs are free at cycle 0."""
        return [0] * (self.program.ipus * (2 if self.options.overlaps_io else 1))

    def time_sequence(self, body: ir.Sequence, clock: IpuClock) -> TimedPart:
        """Times the steps of a sequence and advances the clock."""
        return join_parts(self._time_node(node, clock) for node in body.steps)

    def _time_node(self, node: ir.Node, clock: IpuClock) -> TimedPart:
        match node:
            case ir.Execute():
                return self._time_execute(node, clock)
            case ir.Copy():
                return self.moves.time_copy(node, clock)
            case ir.Load() | ir.Store():
                return self.moves.time_storage_move(node, clock)
            case ir.StreamIn() | ir.StreamOut():
                return self.moves.time_queue(node, clock)
            case ir.HostCall():
                self._add_assumption(node.kernel.origin, f"the host's `{node.name}` takes no time")
                return self.moves.time_host_call(node)
            case ir.Task():
                return self._time_task(node, clock)
            case ir.Pipeline():
                return self._time_pipeline(node, clock)
            case ir.Repeat():
                return self._time_repeat(node, clock)
            case ir.While():
                return self._time_while(node, clock)
            case ir.Switch():
                return self._time_switch(node, clock)
            case ir.Sequence():
                return self.time_sequence(node, clock)
            case ir.Send() | ir.Receive():
                raise InternalError("the model times whole programs, not the part of a process")

    # Kernels

    def _time_execute(self, node: ir.Execute, clock: IpuClock) -> TimedPart:
        operands = tuple(self.layouts.layout_on_ipu((value, node.ipu)) for value in node.reads)
        cost = self._kernel_cost(node, operands)
        self.kernels[id(node)] = cost
        for value, layout in zip(node.reads, cost.operands, strict=True):
            self.layouts.set_default_layout((value, node.ipu), layout)
        start = clock[node.ipu]
        clock[node.ipu] += cost.cycles
        for number, total in cost.totals.items():
            self.account.add_operation(node.ipu, number, total, cost.operand_tiles)
        self.assumptions.update(dict.fromkeys(cost.assumptions))
        origin = node.kernel.origin
        key = id(cost.trace), node.ipu, origin
        if key not in self._timed_kernels:
            part = TimedPart(((0, tr.assign_to_ipu(cost.trace, node.ipu)),), cost.nodes)
            self._timed_kernels[key] = part.wrap_in_node(
                "execute", _title_of_kernel(cost.nodes), origin, cost.cycles, node.ipu
            )
        parts = [self._timed_kernels[key].start_at(start)]
        for i, (value, layout) in enumerate(zip(node.writes, cost.results, strict=True)):
            is_output = i in cost.views and value in self._outputs
            if is_output and layout.view:
                final_layout = self.layout_on(value, node.ipu)
            else:
                final_layout = self.layouts.set_default_layout((value, node.ipu), layout)
            must_move = final_layout.order_key != layout.order_key
            if is_output:
                parts.append(
                    self.moves.copy_view_to_output(node.ipu, value, final_layout, must_move, clock)
                )
            elif must_move:
                parts.append(
                    self.moves.move_between_tiles(
                        node.ipu, "rearrange", value, origin, final_layout, clock
                    )
                )
        return join_parts(parts)

    def _kernel_cost(
        self, node: ir.Execute, operands: tuple[TensorLayout | None, ...]
    ) -> KernelCost:
        run = KernelRun(
            node.kernel,
            operands,
            self._plans[-1],
            self._collectives[node.ipu],
            self._makers.directions.directions_of_kernel(node),
            self._counted.branch_at_iteration,
            self._turn,
        )
        return self._known.cost_of_run(run, self._settings)

    def layout_on(self, value: ValueId, ipu: IpuId) -> TensorLayout:
        """Returns the layout of a value; one that no kernel has asked for is mapped linearly."""
        existing = self.layouts.layout_on_ipu((value, ipu))
        if existing is not None:
            return existing
        tiles = self.target.tiles_per_ipu
        linear = self._linear.setdefault(ipu, Layouts((), (), (), tiles))
        return self.layouts.set_default_layout(
            (value, ipu), linear.lay_out_linearly(shape_of_aval(self.program.avals[value]))
        )

    # Control

    def _add_assumption(self, origin: str, assumption: str) -> None:
        self.assumptions[f"{origin or 'a loop'}: {assumption}"] = None

    def _time_repeat(self, node: ir.Repeat, clock: IpuClock) -> TimedPart:
        count = node.count
        if count is None:
            self._add_assumption(node.origin, "only values tell how often it runs; taken as once")
            count = 1
        kinds = classify_iterations(self._counted.branches_in_loop.get(id(node), ()), count)
        iteration_costs: list[IterationCost] = []
        for iteration, times in kinds.kinds:
            body_clock = self.new_clock()
            with self.account.count_repeated(times), self._within_iteration(iteration):
                body = self._time_iteration(node, body_clock)
            iteration_costs.append(
                IterationCost(tr.group_traces(body.traces), max(body_clock), body.nodes)
            )
        node_of_loop = ProgramNode(kind="repeat", name="repeat", origin=node.origin, cycles=0)
        loop_cost = repeat_iterations(kinds, iteration_costs, node_of_loop)
        start = _advance_together(clock, loop_cost.cycles)
        return TimedPart(((start, loop_cost.trace),), loop_cost.nodes)

    @contextlib.contextmanager
    def _within_iteration(self, iteration: int | None) -> Generator[None]:
        """Models all that is inside in this iteration of the innermost loop."""
        outer_iteration, self._turn = self._turn, iteration
        yield
        self._turn = outer_iteration

    def _time_iteration(self, node: ir.Repeat, clock: IpuClock) -> TimedPart:
        """Times the body of a loop, and the moves of its slices, stacks and variables."""
        body = self.time_sequence(node.body, clock)
        moves = [("slice", s.ipu, s.element, self.layout_on(s.element, s.ipu)) for s in node.slices]
        moves += [
            ("stack", s.ipu, s.element, self.layout_on(s.element, s.ipu)) for s in node.stacks
        ]
        for carry in node.carry:
            if (carry.entering, carry.ipu) in self._kept:
                continue
            entering = self.layout_on(carry.entering, carry.ipu)
            if self.layout_on(carry.leaving, carry.ipu).order_key != entering.order_key:
                moves.append(("rearrange loop variable", carry.ipu, carry.leaving, entering))
        move_parts = (
            self.moves.move_between_tiles(ipu, name, value, node.origin, layout, clock)
            for name, ipu, value, layout in moves
        )
        return join_parts([body, *move_parts])

    def _time_while(self, node: ir.While, clock: IpuClock) -> TimedPart:
        self._add_assumption(node.origin, "only values tell how often it runs; taken as once")
        start_clock = list(clock)
        iteration_part = join_parts(
            [self.time_sequence(node.condition, clock), self.time_sequence(node.body, clock)]
        )
        return iteration_part.wrap_in_node(
            "while", "while", node.origin, _count_elapsed_cycles(start_clock, clock)
        )

    def _time_switch(self, node: ir.Switch, clock: IpuClock) -> TimedPart:
        """Times the branch that counters decide on, or the slowest one if only values tell."""
        start_clock = list(clock)
        timed_branches: list[tuple[IpuClock, TimedPart, Totals]] = []
        for branch in node.branches:
            branch_clock = list(start_clock)
            with self.account.count_separately() as totals:
                timed_branches.append(
                    (branch_clock, self.time_sequence(branch.body, branch_clock), totals)
                )
        branch_taken = max(range(len(timed_branches)), key=lambda i: max(timed_branches[i][0]))
        branch_of_iteration = self._counted.branch_at_iteration.get(id(node))
        if branch_of_iteration is not None and self._turn is not None:
            branch_taken = int(branch_of_iteration[self._turn])
        clock[:], part, totals = timed_branches[branch_taken]
        self.account.include_totals(totals)
        branches = join_parts(
            branch_part.wrap_in_node(
                "sequence", f"branch {i}", "", _count_elapsed_cycles(start_clock, after)
            ).set_node_counts(int(i == branch_taken))
            for i, (after, branch_part, _) in enumerate(timed_branches)
        )
        switch_part = TimedPart(part.traces, branches.nodes)
        return switch_part.wrap_in_node(
            "switch", "switch", node.origin, _count_elapsed_cycles(start_clock, clock)
        )

    # Pipelines

    def _time_task(self, node: ir.Task, clock: IpuClock) -> TimedPart:
        body = self._time_task_body(node)
        start = _advance_together(clock, body.cycles)
        stage, phase = node.spec.stage, _PHASES.get(node.spec.kind, "bwd")
        name = phase if stage < 0 else f"stage {stage} {phase}"
        trace = tr.build_tasks([body.trace], [0], [0], [max(stage, tr.NONE)], [tr.NONE], [phase])
        return TimedPart(((start, trace),), body.nodes).wrap_in_node(
            "task", name, node.origin, body.cycles
        )

    def _time_task_body(self, node: ir.Task) -> TaskBody:
        self._plans.append(plan_options_of_stage(node.spec, self._plans[-1]))
        clock = self.new_clock()
        part = self.time_sequence(node.body, clock)
        self._plans.pop()
        return TaskBody(tr.group_traces(part.traces), max(clock), part.nodes, node.origin)

    def _time_pipeline(self, node: ir.Pipeline, clock: IpuClock) -> TimedPart:
        schedule = spread_copies(node.schedule)
        bodies: dict[TaskKind, TaskBody] = {}
        flows: dict[TaskKind, list[Flow]] = {}
        maker: dict[ValueId, TaskKind] = {}
        parts: list[TimedPart] = []
        for step in node.body.steps:
            match step:
                case ir.Task():
                    key = (step.spec.stage, TaskPhase(step.spec.kind.value))
                    runs = count_micro_batches(node.schedule, step.spec.stage)
                    with self.account.count_repeated(runs):
                        bodies[key] = self._time_task_body(step)
                    maker.update(dict.fromkeys(ir.values_written(step), key))
                case ir.Copy() if bodies and HOST not in (step.source, step.target):
                    flow = (step.source, step.target, self.moves.total_bytes_of(step.values))
                    makers = {maker.get(value) for value in step.values}
                    tasks = [*bodies]
                    key = next((t for t in reversed(tasks) if t in makers), tasks[-1])
                    flows.setdefault(key, []).append(flow)
                case _:
                    parts.append(self._time_node(step, clock))
        for missing_task in list_stage_phase_pairs(schedule):
            # A stage without gradients has no backward task.
            bodies.setdefault(missing_task, TaskBody(tr.group_traces(()), 0))
        number = self.account.numbers(TRANSFERS)
        run = time_pipeline_schedule(
            schedule, bodies, flows, self.options, self.program.ipus, number
        )
        start = _advance_together(clock, run.profile.cycles)
        for ipu, total in run.transfers.items():
            self.account.add_operation(ipu, number, total)
        if self.pipeline is None:
            self.pipeline = dc.replace(run.profile, stages=node.schedule.stages)
        run_part = TimedPart(((start, run.trace),), run.nodes)
        parts.append(run_part.wrap_in_node("pipeline", node.name, node.origin, run.profile.cycles))
        return join_parts(parts)


def _advance_together(clock: IpuClock, cycles: int) -> int:
    """Advances all IPUs from the latest clock by some cycles; returns when that began."""
    start = max(clock)
    clock[:] = [start + cycles] * len(clock)
    return start


def _title_of_kernel(nodes: Sequence[ProgramNode]) -> str:
    """Returns a title for a kernel: its most expensive operation, and the number of others."""
    if not nodes:
        return "kernel"
    name = max(nodes, key=lambda node: node.cycles * node.count).name
    return f"{name} and {len(nodes) - 1} more" if len(nodes) > 1 else name


def _count_elapsed_cycles(start_clock: IpuClock, end_clock: IpuClock) -> int:
    """Returns the cycles from the first IPU that started to the last one that stopped."""
    advanced = [pair for pair in zip(start_clock, end_clock, strict=True) if pair[0] != pair[1]]
    return max((end for _, end in advanced), default=0) - min(
        (start for start, _ in advanced), default=0
    )


def _bytes_of_sums(program: ir.Program, ipu: int, kind: Sum) -> int:
    """Returns the bytes of all sums of a kind in an IPU's kernels; 0 for a single replica."""
    if program.replicas == 1:
        return 0
    runs = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute))
    return sum(
        bytes_of_replica_sums(run.kernel.jaxpr.jaxpr, kind) for run in runs if run.ipu == ipu
    )
