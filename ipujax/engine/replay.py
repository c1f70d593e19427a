"""Runs a Program node by node: dispatches kernels in order, and devices overlap them.

A tree is compiled once, into one Python callable per step. Values are kept in a dictionary by
(value, IPU); what no later step of its sequence reads is dropped at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.distribution import gather_from_processes
from ipujax.engine import host_side, transfers
from ipujax.engine.device_placement import Axis, PerReplica, Placement
from ipujax.engine.loop_iterations import (
    Rows,
    Step,
    advance_carry,
    run_iteration,
    set_final_carry,
    set_initial_carry,
)
from ipujax.engine.loop_steps import StreamedLoop, Values, is_streamable
from ipujax.engine.node_kernels import NodeKernels
from ipujax.engine.pipelines import PipelinedLoop
from ipujax.engine.queue_session import Session
from ipujax.engine.remote_storage import Storing, load_stored_value
from ipujax.engine.single_call import build_single_call
from ipujax.engine.task_compilation import Compilation, Compiled
from ipujax.engine.transfers import TOGETHER, Apart
from ipujax.ground import EnqueueError, events
from lowering import HOST, ir


class Machine:
    """A Program, ready to run once its `compilation` is finished.

    Args:
      program: verified; fused or not.
      placement: the devices of its IPUs.
      donated: which flat arguments may be overwritten.
      apart: what of its arguments and results one process alone has.
    """

    def __init__(
        self,
        program: ir.Program,
        placement: Placement,
        donated: Sequence[int] = (),
        apart: Apart = TOGETHER,
    ):
        self.program, self.placement = program, placement
        self.compilation = Compilation(
            waits=placement.spans_processes, follows_operands=placement.has_meshes
        )
        self.shared = host_side.find_host_values_shared_by_replicas(program)
        self.exchange = transfers.build_exchange(program, placement)
        self.apart = apart
        part = transfers.local_program_part(program, placement, apart)
        self.part, self.kept = part.program, part.kept
        self.kernels = NodeKernels(self.compilation, placement)
        # Whoever reads what an optimizer has put away gets it as it was.
        self.stored = {
            node.kept for node in ir.walk_nodes(self.part.body) if isinstance(node, ir.Store)
        }
        self._homes = ir.ipu_of_each_value(program)
        spare = {program.inputs[number] for number in donated}
        undonated = {*program.inputs, *(value for value, _ in program.constants)} - spare
        self.spare = ir.find_values_carried_by_one_loop(program) - undonated
        self._needs = ir.PlacesOfReads(self._homes)
        self._constants = [(value, jnp.asarray(data)) for value, data in program.constants]
        self._run, steps = self._build_program(spare)
        loops = [step for step in steps if isinstance(step, StreamedLoop)]
        self._single_call = build_single_call(self, loops, donated)
        self._arguments = host_side.Arguments(self, donated)
        self._results = host_side.build_result_reader(self)
        self.infeeds = ir.queues_of_program(self.part, ir.StreamIn)
        self.outfeeds = ir.queues_of_program(self.program, ir.StreamOut)

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """Runs the program once on flat arguments; gives flat results."""
        replicas, is_part = len(self.placement.replicas_of_process), self.placement.spans_processes
        queues = self.infeeds, self.outfeeds
        with Session(replicas, *queues, is_part, self.exchange) as session:
            if self._single_call is not None:
                results = self._single_call.run_if_ready(arguments, session)
                if results is not None:
                    return results
            input_keys = [(value, HOST) for value in self.program.inputs]
            values: Values = dict(zip(input_keys, self._arguments(arguments), strict=True))
            values.update(((value, HOST), data) for value, data in self._constants)
            self._run(values, session)
        return self._results(values)

    def place_arguments(self, arguments: Sequence[object]) -> list[object]:
        """Returns flat arguments with each array on the device of the first IPU that reads it.

        The last ones, which the program takes beside those of the user, may be missing.
        """
        first_reads = dict(reversed(self.argument_reads))
        placed = list(arguments)
        for number, argument in enumerate(arguments):
            if number in first_reads and isinstance(argument, jax.Array):
                placed[number] = self.placement.place_argument(argument, first_reads[number])
        return placed

    @functools.cached_property
    def argument_reads(self) -> list[tuple[int, ir.IpuId]]:
        """The number of each flat argument that an IPU reads, and the IPU, in order of reading."""
        number_of_input = {value: number for number, value in enumerate(self.program.inputs)}
        return [
            (number_of_input[value], node.target)
            for node in ir.walk_nodes(self.part.body)
            if isinstance(node, ir.Copy) and node.source == HOST
            for value in node.values
            if value in number_of_input
        ]

    def list_compiled_kernels(self) -> list[Compiled]:
        """Returns each kernel as a function, including those that are part of a loop's kernel."""
        nodes = ir.walk_nodes(self.part.body)
        return [self.kernels.compile_kernel(node) for node in nodes if isinstance(node, ir.Execute)]

    def value_struct(
        self, value: ir.ValueId, ipu: ir.IpuId, axis: Axis = 0
    ) -> jax.ShapeDtypeStruct:
        """Returns the shape, dtype and sharding of an IPU's value: see `Placement.array_struct`."""
        return self.placement.array_struct(self.program.avals[value], ipu, axis)

    def build_copier(
        self, values: Sequence[ir.ValueId], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """Builds a function that copies values of an IPU, for callers that overwrite theirs."""
        if not values:
            return lambda: []
        structs = [self.value_struct(value, ipu) for value in values]
        homes = self.placement.result_shardings(ipu, [0] * len(structs))
        return self.compilation.add_function(_copy_each_array, structs, out_shardings=homes)

    def comes_from_host(self, value: ir.ValueId) -> bool:
        """Returns whether a value comes from the host, as an argument or a constant."""
        return self._homes[value] == HOST

    # --- sequences ------------------------------------------------------------------------------

    def _build_program(self, donated: Collection[ir.ValueId]) -> tuple[Step, list[Step]]:
        """Builds one callable for the whole program, and those of its steps."""
        body = ir.Sequence(ir.inline_tasks(self.part.body.steps))
        results = [(value, HOST) for value in self.program.outputs]
        steps = self._build_steps(body, results, donated)
        arguments = [(value, HOST) for value in self.program.inputs]
        dead = ir.find_dead_values_after_steps(body, results, self._needs, arguments)
        return _run_steps_and_drop_values(steps, dead), steps

    def build_sequence(
        self,
        body: ir.Sequence,
        results: Sequence[ir.Place],
        donated: Collection[ir.ValueId] = (),
    ) -> Step:
        """Builds one callable for all steps of a body, which drops values not in `results`."""
        body = ir.Sequence(ir.inline_tasks(body.steps))
        steps = self._build_steps(body, results, donated)
        dead = ir.find_dead_values_after_steps(body, results, self._needs)
        return _run_steps_and_drop_values(steps, dead)

    def _build_steps(
        self, body: ir.Sequence, results: Sequence[ir.Place], donated: Collection[ir.ValueId]
    ) -> list[Step]:
        """Builds the callable of each step; kernels overwrite what they can, also if `donated`."""
        if self.stored:  # which hands one array to several readers
            return [self.build_step(node) for node in body.steps]
        donations = ir.find_overwritable_operands(body, results, donated)
        return [self.build_step(n, places) for n, places in zip(body.steps, donations, strict=True)]

    def build_step(self, node: ir.Node, donated: Collection[ir.Place] = ()) -> Step:
        """Builds the callable of one node; its kernel may overwrite the `donated` values."""
        match node:
            case ir.Execute():
                return self.build_execute(node, donated)
            case ir.Load() | ir.Store():
                return self.build_store_or_load(node)
            case ir.Task():
                return self.build_step(node.body)
            case ir.Copy():
                return self.build_copy(node)
            case ir.Send():
                return transfers.build_send(self, node)
            case ir.Receive():
                return transfers.Receiving(self, node)
            case ir.StreamIn():
                return self.build_stream_in(node)
            case ir.StreamOut():
                return self.build_stream_out(node)
            case ir.HostCall():
                return host_side.build_host_call(self, node)
            case ir.Sequence():
                return self.build_sequence(
                    node, [(v, self._homes[v]) for v in ir.values_written(node)]
                )
            case ir.Repeat():
                return self.build_repeat(node)
            case ir.Pipeline():
                return PipelinedLoop(self, node)
            case ir.While():
                return self.build_while_loop(node)
            case ir.Switch():
                return self.build_switch(node)

    # --- leaves ---------------------------------------------------------------------------------

    def build_execute(self, node: ir.Execute, donated: Collection[ir.Place]) -> Step:
        """Builds the step that runs a kernel."""
        kernel = self.kernels.compile_kernel(node, donated)
        run: Callable[..., list[jax.Array]] = kernel
        if self.placement.is_default and not node.reads:
            run = kernel.run_on_uncommitted_arrays
        reads = [(value, node.ipu) for value in node.reads]
        writes = [(value, node.ipu) for value in node.writes]

        def run_execute(values: Values, session: Session) -> None:
            del session
            operands = [values[value_key] for value_key in reads]
            if self.stored:
                operands = [load_stored_value(operand) for operand in operands]
            values.update(zip(writes, run(*operands), strict=True))

        return run_execute

    def build_store_or_load(self, node: ir.Load | ir.Store) -> Step:
        """Builds the step that stores a value or loads it back."""
        stored_key, value_key = (node.kept, node.ipu), (node.value, node.ipu)
        if isinstance(node, ir.Load):
            source, target, change = stored_key, value_key, load_stored_value
        else:
            source, target, change = value_key, stored_key, Storing(self, node)

        def run_store_or_load(values: Values, session: Session) -> None:
            del session
            values[target] = change(values[source])

        return run_store_or_load

    def build_copy(self, node: ir.Copy) -> Step:
        """Builds the step that copies values between IPUs and the host."""
        placement, source, target = self.placement, node.source, node.target
        source_keys = [(value, source) for value in node.values]
        target_keys = [(value, target) for value in node.values]
        if source == HOST:
            transfer = lambda arrays: placement.move_to_ipu(arrays, target)  # noqa: E731
        elif target == HOST:
            transfer = placement.move_to_host
        elif placement.share_devices(source, target):
            transfer = lambda arrays: arrays  # noqa: E731
        else:
            transfer = lambda arrays: placement.move_between_ipus(arrays, target)  # noqa: E731
        dealt = [value for value in node.values if source == HOST and value in self.shared]
        deal = self.build_broadcast(dealt, target)

        def run_copy(values: Values, session: Session) -> None:
            del session
            arrays = [values[source_key] for source_key in source_keys]
            if self.stored:
                arrays = list(map(load_stored_value, arrays))
            values.update(zip(target_keys, transfer(arrays), strict=True))
            if deal is not None:
                replicated_values = deal(*(values[value, target] for value in dealt))
                values.update(
                    zip(((value, target) for value in dealt), replicated_values, strict=True)
                )

        return run_copy

    def build_broadcast(self, values: Sequence[ir.ValueId], ipu: ir.IpuId) -> Compiled | None:
        """Builds a function that copies shared values to each replica; None if none needs it."""
        if not values or self.placement.replicas == 1:
            return None
        shared, per_replica_axes = [None] * len(values), [0] * len(values)
        broadcast = self.placement.replicate_function(
            lambda *xs: list(xs), ipu, shared, per_replica_axes
        )
        structs = [self.value_struct(value, ipu, None) for value in values]
        shardings = self.placement.result_shardings(ipu, per_replica_axes)
        return self.compilation.add_function(broadcast, structs, out_shardings=shardings)

    def build_stream_in(self, node: ir.StreamIn) -> Step:
        """Builds the step that takes an element from an infeed."""
        writes = [(value, node.ipu) for value in node.writes]
        swap = self.placement.replicas > 1 and node.count is not None
        bring = self.build_host_to_ipu(
            [self.value_struct(value, node.ipu) for value in node.writes], node.ipu
        )

        def run_stream_in(values: Values, session: Session) -> None:
            elements = session.take_infeed_element(node.queue, node.count)
            if swap:
                elements = [np.moveaxis(element, 1, 0) for element in elements]
            values.update(zip(writes, bring(*elements), strict=True))

        return run_stream_in

    def build_host_to_ipu(
        self, structs: Sequence[jax.ShapeDtypeStruct], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """Builds a function that moves NumPy arrays to an IPU; jit is faster than `device_put`."""
        if self.placement.spans_processes:
            return self._build_host_to_ipu_join(structs, ipu)
        homeless = [jax.ShapeDtypeStruct(struct.shape, struct.dtype) for struct in structs]
        homes = tuple(struct.sharding for struct in structs)
        carrier = self.compilation.add_function(lambda *xs: xs, homeless, out_shardings=homes)

        def move_to_ipu(*arrays: np.ndarray) -> list[jax.Array]:
            with events.span("load", f"ipu {ipu}"):
                return carrier.run_on_uncommitted_arrays(*arrays)

        return move_to_ipu

    def _build_host_to_ipu_join(
        self, structs: Sequence[jax.ShapeDtypeStruct], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """Builds a function that moves NumPy arrays to an IPU whose replicas span processes."""
        placement = self.placement

        def join_on_ipu(*arrays: np.ndarray) -> list[jax.Array]:
            with events.span("load", f"ipu {ipu}"):
                pairs = zip(arrays, structs, strict=True)
                return [
                    placement.build_global_array(array, struct.sharding) for array, struct in pairs
                ]

        return join_on_ipu

    def build_stream_out(self, node: ir.StreamOut) -> Step:
        """Builds the step that sends an element to an outfeed."""
        reads = [(value, node.ipu) for value in node.reads]
        swap = None
        if self.placement.replicas > 1 and node.count is not None:
            structs = [self.value_struct(value, node.ipu) for value in node.reads]
            swap = self.compilation.add_function(
                lambda *xs: [jnp.moveaxis(x, 0, 1) for x in xs],
                structs,
                out_shardings=self.placement.result_shardings(node.ipu, [1] * len(structs)),
            )

        def run_stream_out(values: Values, session: Session) -> None:
            leaves = [load_stored_value(values[value_key]) for value_key in reads]
            if swap is not None:
                leaves = swap(*leaves)
            leaves = [self.placement.take_local_replicas(leaf) for leaf in leaves]
            session.get_outfeed_collector(node.queue).queue_results(
                node.structure, leaves, node.count
            )

        return run_stream_out

    # --- branches -------------------------------------------------------------------------------

    def build_scalar_reader(
        self, value: ir.ValueId, description: str, origin: str
    ) -> Callable[[Values], int]:
        """Builds a function that reads a control value, on which all replicas must agree."""
        value_key = (value, self._homes[value])

        def read_scalar(values: Values) -> int:
            value = load_stored_value(values[value_key])
            local_value = (
                value.array
                if isinstance(value, PerReplica)
                else self.placement.take_local_replicas(value)
            )
            array = np.asarray(local_value)
            if self.placement.spans_processes:
                array = gather_from_processes(array).ravel()
            if array.ndim and (array != array[0]).any():
                raise EnqueueError(
                    f"replicas disagree about {description}, and a queue is used inside: "
                    f"{array.tolist()}",
                    where=origin,
                    fix="make the condition equal on all replicas (cross_replica_sum), or move "
                    "the queue operation out of it",
                )
            return array.flat[0]

        return read_scalar

    def build_repeat(self, node: ir.Repeat) -> Step:
        """Builds the step that runs a loop, streamed where its body is simple enough."""
        if node.trips is not None:
            trips = self.build_scalar_reader(node.trips, "a trip count", node.origin)
        else:
            trips = lambda values: node.count or 0  # noqa: E731
        if is_streamable(node):
            return StreamedLoop(self, node, trips)
        (inside,) = ir.bodies_of_node(node)
        spare = ir.find_overwritable_loop_variables(node, self.spare)
        body = self.build_sequence(inside.sequence, inside.results, donated=spare)
        rows = Rows(self, node)

        def run_repeat(values: Values, session: Session) -> None:
            count = int(trips(values))
            set_initial_carry(node.carry, values)
            wholes = rows.prepare_loop_arrays(values)
            order = range(count - 1, -1, -1) if node.reverse else range(count)
            for done, index in enumerate(order):
                rows.read_rows(wholes, values, index)
                run_iteration(body, node, values, session, done, count)
                rows.write_rows(values, index)
                advance_carry(node.carry, values)
            set_final_carry(node.carry, values)

        return run_repeat

    def build_while_loop(self, node: ir.While) -> Step:
        """Builds the step that runs a loop whose condition the host reads."""
        predicate_key = (node.predicate, self._homes[node.predicate])
        condition = self.build_sequence(node.condition, [predicate_key])
        test = self.build_scalar_reader(node.predicate, "a loop's condition", node.origin)
        body = self.build_sequence(node.body, [(c.leaving, c.ipu) for c in node.carry])

        def run_while_loop(values: Values, session: Session) -> None:
            set_initial_carry(node.carry, values)
            done = 0
            while True:
                condition(values, session)
                if not test(values):
                    break
                run_iteration(body, node, values, session, done, None)
                advance_carry(node.carry, values)
                done += 1
            set_final_carry(node.carry, values)

        return run_while_loop

    def build_switch(self, node: ir.Switch) -> Step:
        """Builds the step that runs the branch whose index the host reads."""
        index = self.build_scalar_reader(node.index, "a condition", node.origin)
        targets = list(ir.places_of_writes(node))
        branches = [
            (self.build_sequence(b.sequence, b.results), b.results) for b in ir.bodies_of_node(node)
        ]

        def run_branch(values: Values, session: Session) -> None:
            chosen = min(max(int(index(values)), 0), len(branches) - 1)
            body, results = branches[chosen]
            body(values, session)
            values.update(zip(targets, [values[value_key] for value_key in results], strict=True))

        return run_branch


def _run_steps_and_drop_values(steps: Sequence[Step], dead: Sequence[Sequence[ir.Place]]) -> Step:
    """Returns one step for several, which drops the values that are dead after each."""

    def run_sequence(values: Values, session: Session) -> None:
        for step, dead_keys in zip(steps, dead, strict=True):
            step(values, session)
            for value_key in dead_keys:
                values.pop(value_key, None)

    return run_sequence


def _copy_each_array(*arrays: jax.Array) -> list[jax.Array]:
    return [jnp.copy(array) for array in arrays]
