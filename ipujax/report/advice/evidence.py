"""The evidence for memory advice: what IPUs that lack memory hold, and what could be freed."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Iterable

from ipujax.report.advice.derivatives import Derivatives
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import bytes_to_free
from ipujax.report.advice.index import ProgramIndex
from lowering import HOST, ir, machine, pipelines

DATA = ("variables", "constants", "activations", "fifos")
"""The categories that are the model's own data; the others come with the operations."""

CODE = ("vertex_code", "vertex_state", "control_code", "exchange_code")
"""The categories that come with the program's text."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The bytes on one IPU that lacks memory, at the step that needs most.

    Attributes:
      ipu: the number of the IPU.
      need_bytes: bytes to free, if every tile frees as much as the fullest one must.
      peak_bytes: bytes that the IPU holds.
      held: the bytes of each category.
      pipelined: the program has a pipeline.
      training: the pipeline has a backward pass.
      room_bytes: how far the peak can sink until steps outside of pipelines, such as the weight
        update, need most; the whole peak for programs without a pipeline.
      working_bytes: bytes of activations, without those of the shape of a trained value: gradients
        of weights, and new weights and state, do not shrink with the batch.
      kept_bytes: bytes of activations that `jax.checkpoint` could recompute, and does not yet.
      state_bytes: bytes of the optimizer's state on the tiles.
      accumulator_bytes: bytes of gradient accumulators beyond those of any single task.
      single_share: the share of float32 in all values; 0 where most inputs are float16 already,
        so that float32 is deliberate.
    """

    ipu: int
    need_bytes: int
    peak_bytes: int
    held: dict[str, int]
    pipelined: bool
    training: bool
    room_bytes: int
    working_bytes: int
    kept_bytes: int
    state_bytes: int
    accumulator_bytes: int
    single_share: float


def gather_memory_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """Returns evidence of the IPU with the fullest tile, then of each that lacks memory."""
    memory = facts.profile.memory
    worst, _ = memory.worst
    needs = bytes_to_free(memory)
    lacking_ipus = [ipu for ipu, need in enumerate(needs) if need and ipu != worst]
    idle_memory = (
        facts.model_with_nodes(_remove_work_of_pipeline).memory if facts.index.pipelines else None
    )
    derivatives = Derivatives(facts.index)
    return tuple(
        _evidence_of_ipu(facts, derivatives, idle_memory, ipu, needs[ipu])
        for ipu in (worst, *lacking_ipus)
    )


def _evidence_of_ipu(
    facts: Facts, derivatives: Derivatives, idle_memory: machine.Memory | None, ipu: int, need: int
) -> Evidence:
    index, profile = facts.index, facts.profile
    updates = [n for n in index.nodes_of_kind(ir.Task) if n.spec.kind is pipelines.TaskRole.UPDATE]
    remote_values = _values_in_streaming_memory(index)
    bytes_of_category = {
        name: int(bytes_[ipu]) for name, bytes_ in profile.memory.ipu_categories.items()
    }
    peak = int(profile.memory.peak_bytes[ipu])
    trained_shapes = _shapes_of_trained_values(index.program, updates, derivatives)
    return Evidence(
        ipu=ipu,
        need_bytes=need,
        peak_bytes=peak,
        held=bytes_of_category,
        pipelined=bool(index.pipelines),
        training=bool(updates),
        room_bytes=peak - _peak_bytes_outside_pipelines(profile, idle_memory, ipu)
        if idle_memory is not None
        else peak,
        working_bytes=_count_untrained_activation_bytes(profile.liveness[ipu], trained_shapes),
        kept_bytes=0 if index.pipelines or derivatives.recomputes else derivatives.kept_bytes,
        state_bytes=index.bytes_of_values(
            _find_update_state_on_ipu(index, updates, remote_values, ipu)
        ),
        accumulator_bytes=_count_spare_accumulator_bytes(index, remote_values, ipu),
        single_share=_compute_single_precision_share(facts),
    )


def _peak_bytes_outside_pipelines(
    profile: machine.Profile, idle_memory: machine.Memory, ipu: int
) -> int:
    """Returns the peak of an IPU if its pipelines did nothing, their code included."""
    temporary_bytes = idle_memory.peak_bytes[ipu] - idle_memory.always_live_bytes[ipu]
    return int(profile.memory.always_live_bytes[ipu] + temporary_bytes)


def _remove_work_of_pipeline(node: ir.Node) -> ir.Node:
    """Returns the node; a pipeline becomes a loop that leaves its accumulators unchanged."""
    if not isinstance(node, ir.Pipeline):
        return node
    unchanged_carry = tuple(dc.replace(carry, leaving=carry.entering) for carry in node.carry)
    count = node.schedule.micro_batches
    return ir.Repeat(count=count, body=ir.Sequence(()), carry=unchanged_carry, origin=node.origin)


def _shapes_of_trained_values(
    program: ir.Program, updates: Iterable[ir.Task], derivatives: Derivatives
) -> set[str]:
    """Returns shapes and dtypes of values that updates read, or that are inputs and outputs."""
    update_inputs = {value for task in updates for value in ir.values_read(task)}
    shapes = {program.describe_aval(value) for value in update_inputs}
    if derivatives.kept_bytes or derivatives.recomputes:
        outputs = {program.describe_aval(value) for value in program.outputs}
        shapes |= outputs & {program.describe_aval(value) for value in program.inputs}
    return shapes


def _count_untrained_activation_bytes(
    liveness: machine.Liveness, trained_shapes: Collection[str]
) -> int:
    """Returns the bytes of activations at the worst step without the shape of a trained value."""
    live_tensors = liveness.alive_at(liveness.worst)
    activations = (tensor for tensor in live_tensors if tensor.category == "activations")
    return sum(tensor.total_bytes for tensor in activations if tensor.name not in trained_shapes)


def _values_in_streaming_memory(index: ProgramIndex) -> set[ir.ValueId]:
    """Returns the values in streaming memory, under the names of loop variables too."""
    remote: set[ir.ValueId] = set()
    for node, _ in index.nodes:
        if isinstance(node, ir.Store) and node.storage.remote:
            remote.add(node.kept)
        if isinstance(node, (ir.Repeat, ir.Pipeline)):
            remote.update(carry.entering for carry in node.carry if carry.initial in remote)
    return remote


def _find_update_state_on_ipu(
    index: ProgramIndex, updates: Iterable[ir.Task], remote: set[ir.ValueId], ipu: int
) -> set[ir.ValueId]:
    """Returns the values that only updates read on an IPU and that no other memory holds."""
    other_values = {node.value for node in index.nodes_of_kind(ir.Load)}
    for copy in (node for node in index.nodes_of_kind(ir.Copy) if node.source != HOST):
        other_values.update(copy.values)
    for loop in index.pipelines:
        other_values.update(ir.values_read(loop), (carry.final for carry in loop.carry))
    steps = [n for task in updates for n in ir.walk_nodes(task.body) if isinstance(n, ir.Execute)]
    written_values = {value for n in steps for value in n.writes}
    read_values = {value for n in steps if n.ipu == ipu for value in n.reads}
    return read_values - written_values - other_values - remote


def _count_spare_accumulator_bytes(index: ProgramIndex, remote: set[ir.ValueId], ipu: int) -> int:
    """Returns the bytes of accumulators on an IPU beyond those that one task needs at once."""
    spare_bytes = 0
    for pipeline in index.pipelines:
        accumulators = {
            c.entering for c in pipeline.carry if c.ipu == ipu and c.initial not in remote
        }
        tasks = [node for node in pipeline.body.steps if isinstance(node, ir.Task)]
        task_bytes = (
            index.bytes_of_values(accumulators & set(ir.values_read(task))) for task in tasks
        )
        spare_bytes += index.bytes_of_values(accumulators) - max(task_bytes, default=0)
    return spare_bytes


def _compute_single_precision_share(facts: Facts) -> float:
    if not facts.has_mostly_single_inputs:
        return 0.0
    bytes_of_dtype = facts.index.bytes_by_dtype(range(len(facts.program.avals)))
    return bytes_of_dtype["float32"] / max(bytes_of_dtype.total(), 1)
