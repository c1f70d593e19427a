"""The contents of memory over time: a second walk over a program, once all layouts are known."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering import ir
from lowering.ground import HOST, IpuId, ValueId
from lowering.jaxprs import JaxprEqn, user_line
from lowering.machine.kernels.alive import LivenessRecord, LiveTensor, TileMemoryTracker
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import shape_of_aval
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.labels import label_of_moved
from lowering.machine.mapping import map_linearly
from lowering.machine.programs.memory_steps import RunInMemory
from lowering.machine.programs.program_facts import ProgramFacts
from lowering.machine.programs.remote_storage import (
    STREAMING_MEMORY_MOVES,
    bytes_stored_per_replica,
    values_born_in,
)
from lowering.machine.programs.updates import Updates
from lowering.ops import word_of_equation

_Loop: TypeAlias = ir.Repeat | ir.Pipeline | ir.While

LayoutLookup: TypeAlias = Callable[[ValueId, IpuId], TensorLayout]
"""A function that returns the layout of a value on an IPU."""


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residency:
    """The tensors that one IPU's memory holds.

    Attributes:
      always: tensors that are alive at every step.
      alive: the others, step by step.
      remote_bytes: bytes of tensors in streaming memory.
    """

    always: tuple[LiveTensor, ...]
    alive: LivenessRecord
    remote_bytes: int


def find_residency(
    facts: ProgramFacts,
    kernels: Mapping[int, KernelCost],
    layout_of: LayoutLookup,
    tiles: int,
    user_names: Mapping[ValueId, str],
    updates: Updates,
) -> list[Residency]:
    """Finds the tensors in the memory of each IPU of a replica.

    Arguments and constants are alive at every step, as the original's variables were; a result
    takes the memory of an argument that is not needed any more. An update of an argument, or of a
    loop variable, moves to its memory as soon as the old value is not needed: the memory that it
    has had until then is free again. A remotely stored value is on the tiles only while it is
    used.

    Args:
      facts: the facts about the program.
      kernels: the cost of each `Execute`, by its identity.
      layout_of: returns the layout of a value on an IPU.
      tiles: the number of tiles of one IPU.
      user_names: the user's names of values.
      updates: the results that take the memory of arguments.
    """
    program = facts.program
    walker = _ResidencyWalker(facts, kernels, layout_of, tiles, user_names, updates)
    walker.walk_body(program.body.steps, set())
    return [
        Residency(
            always=tuple(walker.always[ipu].values()),
            alive=walker.memory[ipu].finish_record(),
            remote_bytes=walker.remote[ipu],
        )
        for ipu in range(program.ipus)
    ]


class _ResidencyWalker:
    """One walk over a program; `buffers` holds the owner of each value's memory."""

    def __init__(
        self,
        facts: ProgramFacts,
        kernels: Mapping[int, KernelCost],
        layout_of: LayoutLookup,
        tiles: int,
        user_names: Mapping[ValueId, str],
        updates: Updates,
    ) -> None:
        program, self.facts, self.names = facts.program, facts, user_names
        self.new = {**updates, **facts.loop_updates}
        self.steps = facts.memory_steps_with(self.new)
        self.out_of_date: set[ir.Place] = set()
        self.program, self.kernels, self.lies, self.tiles = program, kernels, layout_of, tiles
        self.memory = [TileMemoryTracker(tiles) for _ in range(program.ipus)]
        self.always: list[dict[ir.Place, LiveTensor]] = [{} for _ in range(program.ipus)]
        self.remote = [0] * program.ipus
        self.buffers: dict[ir.Place, ir.Place] = {}
        self.needs = facts.reads
        self.constants = {value for value, _ in program.constants}
        self.given = {*program.inputs, *self.constants}
        self.makers, self.passing = facts.makers, facts.passing
        loops = [node for node in ir.walk_nodes(program.body) if isinstance(node, _Loop)]
        # Values for the next iteration have their memory already, and so have those in FIFOs.
        self.leaving = set(facts.overwriting)
        for node in (node for node in loops if isinstance(node, ir.Pipeline)):
            self.leaving.update((value, fifo.ipu) for fifo, value in _values_in_fifos(node))
        self.kept = facts.stored
        self.remotely = {
            value_on_ipu for value_on_ipu, storage in self.kept.items() if storage.remote
        }

    def walk_body(
        self,
        steps: Sequence[ir.Node],
        results: set[ir.Place],
        entering: frozenset[ir.Place] = frozenset(),
    ) -> None:
        """Walks the steps of a body, after which only `results` are needed.

        The memory of loop variables, `entering`, is not given back, but may be taken over.
        """
        for step in self.steps.steps_of_body(steps, results, entering):
            if step.run is not None:
                self._walk_run(self.kernels[id(step.node)], step.run, step.dying)
            else:
                self._walk_node(step.node, set(step.dying))
            for value_on_ipu in step.dropped:
                self._drop_value(value_on_ipu)
            self.out_of_date.update(step.out_of_date)
            for value_on_ipu in step.replaced:
                self._move_update_to_old(value_on_ipu)

    def _walk_node(self, node: ir.Node, dying: set[ir.Place]) -> None:
        match node:
            case ir.Copy() if HOST in (node.source, node.target):
                self._walk_host_copy(node)
            case ir.Copy():
                name, origin = (
                    f"copy {node.source} -> {node.target}",
                    self.makers.line_of_first(node.values),
                )
                self.memory[node.source].record_step(name, origin)
                self._add_values(
                    ((value, node.target) for value in node.values), "copy", name, origin
                )
            case ir.Store():
                self._walk_store(node)
            case ir.Load() if (node.value, node.ipu) in self.passing:
                pass
            case ir.Load():
                name = STREAMING_MEMORY_MOVES["load"] if node.storage.remote else "all-gather"
                self._add_values(
                    ir.places_of_writes(node),
                    "load",
                    name,
                    self.makers.line_of_first((node.value, node.kept)),
                )
            case ir.StreamIn():
                self._add_values(
                    ir.places_of_writes(node),
                    "stream-in",
                    f"stream-in {node.queue.name}",
                    node.origin,
                )
            case ir.StreamOut():
                self.memory[node.ipu].record_step(f"stream-out {node.queue.name}", node.origin)
            case ir.Repeat():
                self._walk_repeat(node, dying)
            case ir.Pipeline():
                self._walk_pipeline(node, dying)
            case ir.While():
                self._start_loop_variables(node, dying)
                self.walk_body(node.condition.steps, {(node.predicate, HOST)})
                self._walk_iteration(node)
            case ir.Switch():
                self._walk_switch(node, dying)
            case _:
                self._add_values(ir.places_of_writes(node), type(node).__name__.lower())

    # Buffers

    def _live_tensor_of_value(
        self,
        value_on_ipu: ir.Place,
        operation: str,
        category: str = "activations",
        origin: str = "",
        label_and_scope: tuple[str, str] | None = None,
    ) -> LiveTensor:
        value, ipu = value_on_ipu
        path = self.names.get(value, "")
        layout = (
            self._layout_of_stored(value_on_ipu)
            if value_on_ipu in self.kept
            else self.lies(value, ipu)
        )
        words = self.facts.describe_value(value)
        label, scope = label_and_scope or (label_of_moved(words.maker, operation), words.scope)
        return LiveTensor(
            words.type, operation, origin, layout, category, value, path, label, scope
        )

    def _live_tensor_of_result(
        self, place: ir.Place, made: LiveTensor | None, eqn: JaxprEqn | None
    ) -> LiveTensor:
        """Describes a kernel's result as `made` in it, or else by its equation, if it has one."""
        if made is not None:
            words = made.label, made.scope
            return self._live_tensor_of_value(
                place, made.operation, origin=made.origin, label_and_scope=words
            )
        if eqn is None:
            return self._live_tensor_of_value(place, "copy")
        words = word_of_equation(eqn), self.facts.describe_value(place[0]).scope
        return self._live_tensor_of_value(
            place, eqn.primitive.name, origin=user_line(eqn), label_and_scope=words
        )

    def _layout_of_stored(self, value_on_ipu: ir.Place) -> TensorLayout:
        """Returns the layout of the part of a stored value that a replica holds."""
        full_shape, parts = (
            shape_of_aval(self.program.avals[value_on_ipu[0]]),
            self.program.num_local_replicas,
        )
        elements = (
            -(-full_shape.elements // parts)
            if self.kept[value_on_ipu].sharded
            else full_shape.elements
        )
        return TensorLayout(map_linearly(elements, full_shape.element_bytes, self.tiles))

    def _add_values(
        self, values_on_ipus: Iterable[ir.Place], operation: str, name: str = "", origin: str = ""
    ) -> None:
        """Adds values that arrive, those of an IPU in one step."""
        on_tiles = [value_on_ipu for value_on_ipu in values_on_ipus if value_on_ipu[1] != HOST]
        for place in on_tiles:
            self._begin_value(place, self._live_tensor_of_value(place, operation, origin=origin))
        for ipu in dict.fromkeys(ipu for _, ipu in on_tiles):
            self.memory[ipu].record_step(name or operation, origin)

    def _add_in_own_step(self, value_on_ipu: ir.Place, live: LiveTensor) -> None:
        self._begin_value(value_on_ipu, live)
        self.memory[value_on_ipu[1]].record_step(live.label, live.origin)

    def _begin_value(self, value_on_ipu: ir.Place, live: LiveTensor) -> None:
        self.buffers[value_on_ipu] = value_on_ipu
        self.memory[value_on_ipu[1]].add_tensor(value_on_ipu, live)

    def _drop_value(self, value_on_ipu: ir.Place) -> None:
        if value_on_ipu[1] != HOST and self.buffers.pop(value_on_ipu, None) == value_on_ipu:
            self.memory[value_on_ipu[1]].drop_tensor(value_on_ipu)

    def _hand_over_value(self, old: ir.Place, successor: ir.Place, live: LiveTensor) -> None:
        """Gives the memory of a value that is not needed any more to another."""
        owner = self.buffers.get(old, old)
        if owner == old and owner not in self.always[old[1]]:
            self.memory[old[1]].hand_over_memory(old, successor, live)
            owner = successor
        self.buffers[successor] = owner
        self.buffers.pop(old, None)

    def _move_update_to_old(self, old: ir.Place) -> None:
        """Moves an update to the memory of the old value, if that is free."""
        new, always = self.new.get(old), self.always[old[1]]
        if new is None or old not in self.out_of_date or self.buffers.get(new) != new:
            return
        live = self.memory[old[1]].drop_tensor(new)
        if live is not None and old in self.buffers:
            self._hand_over_value(old, new, live)
        elif live is not None and old in always and old not in self.buffers.values():
            self.buffers[new] = old
        elif live is not None:
            self.memory[old[1]].add_tensor(new, live)

    # Nodes

    def _walk_host_copy(self, node: ir.Copy) -> None:
        if node.target == HOST:
            return
        for value in node.values:
            value_on_ipu = (value, node.target)
            if value not in self.given:
                self._add_values(
                    [value_on_ipu], "copy", "host copy", self.makers.line_of_first([value])
                )
            elif value_on_ipu not in self.passing:
                constant = value in self.constants
                kind = ("constant", "constants") if constant else ("argument", "variables")
                self.always[node.target][value_on_ipu] = self._live_tensor_of_value(
                    value_on_ipu, *kind
                )
                self.buffers[value_on_ipu] = value_on_ipu

    def _walk_run(self, cost: KernelCost, run: RunInMemory, dying: frozenset[ir.Place]) -> None:
        record, in_place = cost.life.liveness_with_donated(
            run.donated, run.successors, cost.operand_tiles
        )
        memory, reads, heirs = self.memory[run.ipu], run.reads, set[ir.Place]()
        reusing: list[tuple[ir.Place, ir.Place, LiveTensor]] = []
        surviving: dict[int, tuple[ir.Place, LiveTensor]] = {}
        copied: list[tuple[ir.Place, LiveTensor]] = []
        owners = zip(in_place, cost.life.results, strict=True)
        results = zip(run.results, cost.results, owners, strict=True)
        for (place, eqn), layout, (operand, owner) in results:
            live = self._live_tensor_of_result(place, cost.life.births.get(owner), eqn)
            if operand is None:
                tensor_key = record.left.get(owner)
                if tensor_key is not None and layout.order_key == live.laid.order_key:
                    surviving[tensor_key] = place, live
                else:
                    copied.append((place, live))
            elif reads[operand] in dying and reads[operand] not in heirs:
                heirs.add(reads[operand])
                reusing.append((reads[operand], place, live))
            else:
                self._add_in_own_step(
                    place, self._live_tensor_of_value(place, "copy", origin=live.origin)
                )
        memory.record_body(record, surviving)
        for read, place, live in reusing:
            self._hand_over_value(read, place, live)
        self.buffers.update((place, place) for place, _ in surviving.values())
        for place, live in copied:
            self._add_in_own_step(place, live)

    def _walk_switch(self, node: ir.Switch, dying: set[ir.Place]) -> None:
        for branch in ir.bodies_of_node(node):
            results = set(branch.results)
            self.walk_body(branch.sequence.steps, results)
            for value_on_ipu in results & values_born_in(branch):
                self._drop_value(value_on_ipu)
        new: list[ir.Place] = []
        ends = (branch.results for branch in ir.bodies_of_node(node))
        for value_on_ipu, *branch_results in zip(ir.places_of_writes(node), *ends, strict=True):
            old = next(
                (
                    branch_result
                    for branch_result in branch_results
                    if branch_result in dying and branch_result in self.buffers
                ),
                None,
            )
            if old is None and value_on_ipu not in self.remotely:
                new.append(value_on_ipu)
            elif old is not None:
                self._hand_over_value(
                    old,
                    value_on_ipu,
                    self._live_tensor_of_value(value_on_ipu, "cond", origin=node.origin),
                )
        self._add_values(new, "cond", origin=node.origin)

    def _walk_store(self, node: ir.Store) -> None:
        stored_on_ipu = (node.kept, node.ipu)
        origin = self.makers.line_of_first((node.value, node.kept))
        if not node.storage.remote:
            live = self._live_tensor_of_value(stored_on_ipu, "store", "variables", origin)
            self._add_in_own_step(stored_on_ipu, live._replace(value=None))
            return
        if (node.value, node.ipu) not in self.passing:
            self.memory[node.ipu].record_step(STREAMING_MEMORY_MOVES["store"], origin)
        if stored_on_ipu not in self.leaving:
            self._count_remote_bytes(stored_on_ipu)

    def _count_remote_bytes(self, value_on_ipu: ir.Place) -> None:
        """Counts the bytes of a stored value in streaming memory."""
        full_shape = shape_of_aval(self.program.avals[value_on_ipu[0]])
        bytes_ = bytes_stored_per_replica(
            full_shape, self.kept[value_on_ipu], self.program.num_local_replicas
        )
        self.remote[value_on_ipu[1]] += bytes_

    # Loops

    def _walk_repeat(self, node: ir.Repeat, dying: set[ir.Place]) -> None:
        self._start_loop_variables(node, dying)
        self._add_values(((s.stacked, s.ipu) for s in node.stacks), "stack", origin=node.origin)
        self._add_values(((s.element, s.ipu) for s in node.slices), "slice", origin=node.origin)
        self._walk_iteration(node)
        for sliced in node.slices:
            self._drop_value((sliced.element, sliced.ipu))

    def _walk_pipeline(self, node: ir.Pipeline, dying: set[ir.Place]) -> None:
        self._start_loop_variables(node, dying)
        waiting = self._add_fifo_tensors(node)
        self._walk_iteration(node)
        for fifo_on_ipu in waiting:
            self._drop_value(fifo_on_ipu)

    def _start_loop_variables(self, node: _Loop, dying: set[ir.Place]) -> None:
        """Starts loop variables, which take over their initial values' memory if they may."""
        needed_elsewhere = set(ir.places_of_reads(dc.replace(node, carry=()), self.needs))
        needed_elsewhere.update((carry.leaving, carry.ipu) for carry in node.carry)
        for carry in reversed(node.carry):
            initial, entering = (carry.initial, carry.ipu), (carry.entering, carry.ipu)
            if initial in self.remotely:
                continue
            live = self._describe_loop_variable(entering, node)
            if initial in dying and initial not in needed_elsewhere:
                dying.discard(initial)
                self._hand_over_value(initial, entering, live)
            else:
                self._add_in_own_step(entering, live)
            needed_elsewhere.add(initial)

    def _describe_loop_variable(self, value_on_ipu: ir.Place, node: _Loop) -> LiveTensor:
        return self._live_tensor_of_value(value_on_ipu, "loop variable", "variables", node.origin)

    def _walk_iteration(self, node: _Loop) -> None:
        body = ir.bodies_of_node(node)[-1]
        results, born = set(body.results), values_born_in(body)
        entering = frozenset((carry.entering, carry.ipu) for carry in node.carry)
        self.walk_body(body.sequence.steps, results, entering)
        of_iteration = born | entering
        for carry in node.carry:
            variable, next_value, final = (
                (value, carry.ipu) for value in (carry.entering, carry.leaving, carry.final)
            )
            if variable in self.remotely:
                continue
            live = self._describe_loop_variable(final, node)
            if variable in self.buffers:  # the next value is copied there
                self._hand_over_value(variable, final, live)
            elif next_value in self.buffers and next_value in of_iteration:
                # It is in the variable's own memory already.
                self._hand_over_value(next_value, final, live)
            else:
                self._add_in_own_step(final, live)
        for value_on_ipu in results & born:
            self._drop_value(value_on_ipu)

    def _add_fifo_tensors(self, node: ir.Pipeline) -> list[ir.Place]:
        """Adds the FIFOs between the tasks of a pipeline; returns those to drop after it."""
        stores = (step for step in ir.walk_nodes(node.body) if isinstance(step, ir.Store))
        remote = {store.kept: store.storage for store in stores if store.storage.remote}
        waiting: list[ir.Place] = []
        for fifo, value in _values_in_fifos(node):
            if value in remote:
                full_shape = shape_of_aval(self.program.avals[value])
                stored_bytes = bytes_stored_per_replica(
                    full_shape, remote[value], self.program.num_local_replicas
                )
                self.remote[fifo.ipu] += fifo.depth * stored_bytes
                continue
            origin = self.makers.line_of_first([value]) or node.origin
            live = self._live_tensor_of_value(
                (value, fifo.ipu), f"fifo of {fifo.depth}", "fifos", origin
            )
            mapping = live.laid.mapping
            fifo_mapping = dc.replace(mapping, element_bytes=mapping.element_bytes * fifo.depth)
            key = (ValueId(-1 - len(waiting)), fifo.ipu)
            self._add_in_own_step(
                key, live._replace(laid=TensorLayout(fifo_mapping, live.laid.view))
            )
            waiting.append(key)
        return waiting


def _values_in_fifos(pipeline: ir.Pipeline) -> list[tuple[ir.Fifo, ValueId]]:
    """Returns the FIFOs that hold anything, with each of their values."""
    return [(fifo, value) for fifo in pipeline.fifos if fifo.depth for value in fifo.values]
