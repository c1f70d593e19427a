"""What advice rests on: what IPUs hold that lack memory, and what could be taken off them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Iterable

from ipujax.report.advice.derivatives import Derivatives
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import need_bytes
from ipujax.report.advice.index import Index
from lowering import HOST, ir, machine, pipelines

DATA = ("variables", "constants", "activations", "fifos")
"""The categories that are the model's own data; the others come with the operations."""

CODE = ("vertex_code", "vertex_state", "control_code", "exchange_code")
"""The categories that come with the program's text."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Bytes on an IPU that lacks memory, at the step that needs most.

    Attributes:
      ipu: which one it is.
      need_bytes: what must go, if it is taken off all tiles alike.
      peak_bytes: what it holds.
      held: the same by category.
      pipelined: the program has a pipeline.
      training: the pipeline has a backward pass.
      room_bytes: how far the peak can sink before what goes on outside of pipelines, such as the
        weight update, needs most; the whole peak for programs without a pipeline.
      working_bytes: of activations, without those as large as what is trained: gradients of
        weights, and new weights and state, do not shrink with the batch.
      kept_bytes: of activations that `jax.checkpoint` could recompute, and does not yet.
      state_bytes: of the optimizer's state, where it is on the tiles.
      accumulator_bytes: of accumulated gradients that no single task needs all of.
      single_share: of all values, the share that is float32; 0 where most of what the program is
        given is float16 already, so that it is for a reason that is not the user's.
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


def gather(facts: Facts) -> tuple[Evidence, ...]:
    """Looks at each IPU that lacks memory, and at the one with the fullest tile, which is first."""
    memory = facts.profile.memory
    worst, _ = memory.worst
    needs = need_bytes(memory)
    others = [ipu for ipu, need in enumerate(needs) if need and ipu != worst]
    idle = facts.changed(_idle).memory if facts.index.pipelines else None
    derivatives = Derivatives(facts.index)
    return tuple(_of(facts, derivatives, idle, ipu, needs[ipu]) for ipu in (worst, *others))


def _of(
    facts: Facts, derivatives: Derivatives, idle: machine.Memory | None, ipu: int, need: int
) -> Evidence:
    index, profile = facts.index, facts.profile
    updates = [n for n in index.of(ir.Task) if n.spec.kind is pipelines.Kind.UPDATE]
    remote = _remote(index)
    held = {name: int(bytes_[ipu]) for name, bytes_ in profile.memory.ipu_categories.items()}
    peak = int(profile.memory.peak_bytes[ipu])
    shapes = _trained(index.program, updates, derivatives)
    return Evidence(
        ipu=ipu,
        need_bytes=need,
        peak_bytes=peak,
        held=held,
        pipelined=bool(index.pipelines),
        training=bool(updates),
        room_bytes=peak - _outside(profile, idle, ipu) if idle is not None else peak,
        working_bytes=_working(profile.liveness[ipu], shapes),
        kept_bytes=0 if index.pipelines or derivatives.recomputes else derivatives.kept_bytes,
        state_bytes=index.bytes(_state(index, updates, remote, ipu)),
        accumulator_bytes=_spared(index, remote, ipu),
        single_share=_single_share(facts),
    )


def _outside(profile: machine.Profile, idle: machine.Memory, ipu: int) -> int:
    """The peak of an IPU if its pipelines did nothing, with the code that it has all the same."""
    beside = idle.peak_bytes[ipu] - idle.always_live_bytes[ipu]
    return int(profile.memory.always_live_bytes[ipu] + beside)


def _idle(node: ir.Node) -> ir.Node:
    """A node; a pipeline leaves its accumulators as they were."""
    if not isinstance(node, ir.Pipeline):
        return node
    kept = tuple(dc.replace(carry, leaving=carry.entering) for carry in node.carry)
    count = node.schedule.micro_batches
    return ir.Repeat(count=count, body=ir.Sequence(()), carry=kept, origin=node.origin)


def _trained(program: ir.Program, updates: Iterable[ir.Task], derivatives: Derivatives) -> set[str]:
    """Shapes and dtypes of what is trained: of what updates read, or comes in and goes out."""
    lasting = {value for task in updates for value in ir.reads(task)}
    shapes = {program.describe(value) for value in lasting}
    if derivatives.kept_bytes or derivatives.recomputes:
        outputs = {program.describe(value) for value in program.outputs}
        shapes |= outputs & {program.describe(value) for value in program.inputs}
    return shapes


def _working(liveness: machine.Liveness, shapes: Collection[str]) -> int:
    """Bytes of activations at the worst step that look like nothing that is trained."""
    alive = liveness.alive_at(liveness.worst)
    activations = (tensor for tensor in alive if tensor.category == "activations")
    return sum(tensor.total_bytes for tensor in activations if tensor.name not in shapes)


def _remote(index: Index) -> set[ir.ValueId]:
    """What is in streaming memory, under the names of loop variables too."""
    remote: set[ir.ValueId] = set()
    for node, _ in index.nodes:
        if isinstance(node, ir.Store) and node.storage.remote:
            remote.add(node.kept)
        if isinstance(node, (ir.Repeat, ir.Pipeline)):
            remote.update(carry.entering for carry in node.carry if carry.initial in remote)
    return remote


def _state(
    index: Index, updates: Iterable[ir.Task], remote: set[ir.ValueId], ipu: int
) -> set[ir.ValueId]:
    """What only updates read on an IPU, and is neither accumulated nor elsewhere."""
    others = {node.value for node in index.of(ir.Load)}
    for copy in (node for node in index.of(ir.Copy) if node.source != HOST):
        others.update(copy.values)
    for loop in index.pipelines:
        others.update(ir.reads(loop), (carry.final for carry in loop.carry))
    steps = [n for task in updates for n in ir.walk(task.body) if isinstance(n, ir.Execute)]
    made = {value for n in steps for value in n.writes}
    read = {value for n in steps if n.ipu == ipu for value in n.reads}
    return read - made - others - remote


def _spared(index: Index, remote: set[ir.ValueId], ipu: int) -> int:
    """Bytes of accumulators on an IPU beside those that one task needs at once."""
    spared = 0
    for loop in index.pipelines:
        sums = {c.entering for c in loop.carry if c.ipu == ipu and c.initial not in remote}
        tasks = [node for node in loop.body.steps if isinstance(node, ir.Task)]
        at_once = (index.bytes(sums & set(ir.reads(task))) for task in tasks)
        spared += index.bytes(sums) - max(at_once, default=0)
    return spared


def _single_share(facts: Facts) -> float:
    if not facts.given_single:
        return 0.0
    made = facts.index.bytes_by_dtype(range(len(facts.program.avals)))
    return made["float32"] / max(made.total(), 1)
