"""What would help a program that does not fit: rules over what the machine model found.

Each rule looks at the numbers and says nothing where its remedy would not change them. The bytes
of an advice are those that it is about, on all IPUs of a replica together, not a promise.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Iterator

from ipujax._report.derivatives import Derivatives
from lowering import HOST, ir, jaxpr, machine, pipelines

_LEAST_SHARE = 0.05  # of the peak; less than that is not worth a line
_PLANNED = {
    "dot_general": "matmuls.poplar_options",
    "conv_general_dilated": "convolutions.poplar_options",
}


@dc.dataclass(frozen=True, slots=True)
class Advice:
    """Something to change.

    Attributes:
      text: what to do.
      about_bytes: of what it takes away, or makes smaller.
    """

    text: str
    about_bytes: int


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a program says of itself.

    Attributes:
      pipelined: it has a pipeline.
      training: the pipeline has a backward pass.
      kept_bytes: of activations that `jax.checkpoint` could recompute, and does not yet.
      state_bytes: of the optimizer's state, where it is on the tiles.
      accumulator_bytes: of accumulated gradients, likewise.
      lasting_bytes: of these, and of arguments on the tiles: what does not depend on the batch.
    """

    pipelined: bool
    training: bool
    kept_bytes: int
    state_bytes: int
    accumulator_bytes: int
    lasting_bytes: int


def advice(
    program: ir.Program, profile: machine.Profile, *, may_recompute: bool
) -> tuple[Advice, ...]:
    """What would help, the largest effect first.

    Args:
      program: what was modelled.
      profile: what came of it.
      may_recompute: whether `IPUConfig.allow_recompute` is set already.
    """
    found = _look(program)
    rules = (
        _about_ipus(profile, found),
        _about_activations(profile, found, may_recompute),
        _about_variables(profile, found),
        _about_the_rest(profile),
    )
    least = _LEAST_SHARE * int(profile.memory.peak_bytes.sum())
    worth = [entry for rule in rules for entry in rule if entry.about_bytes >= least]
    return tuple(sorted(worth, key=lambda entry: -entry.about_bytes))


def _about_ipus(profile: machine.Profile, found: _Found) -> Iterator[Advice]:
    memory, target = profile.memory, profile.target
    ipu, _ = memory.worst
    capacity = memory.limit * target.tiles_per_ipu
    needed, whole = int(memory.peak_bytes[ipu]), int(memory.peak_bytes.sum())
    if needed > capacity and whole > capacity * profile.num_ipus:
        least = max(-(-whole // capacity), profile.num_ipus + 1)
        how = "more pipeline stages" if found.pipelined else "ipu_shard, or a pipeline"
        yield Advice(f"split the model over at least {least} IPUs ({how})", whole)
    elif needed > capacity:
        lightest = int(memory.peak_bytes.argmin())
        how = "stages or their device_mapping" if found.pipelined else "the ipu_shard of some parts"
        text = f"move work from IPU {ipu} to others, such as IPU {lightest}: change {how}"
        yield Advice(text, needed - capacity)


def _about_activations(
    profile: machine.Profile, found: _Found, may_recompute: bool
) -> Iterator[Advice]:
    used = profile.memory.by_category
    waiting = used["fifos"]
    # State that the program makes itself begins as an activation, that of arguments as a variable.
    data = used["variables"] + used["activations"] - found.lasting_bytes
    working = min(max(data, 0), used["activations"])
    if found.training and not may_recompute:
        text = "recompute activations instead of keeping them: IPUConfig.allow_recompute = True"
        yield Advice(text, waiting)
    if found.training and profile.target.remote_bytes_per_second:
        text = "keep waiting activations in streaming memory: pipeline(offload_activations=True)"
        yield Advice(text, waiting)
    text = "recompute activations instead of keeping them: jax.checkpoint around each layer"
    yield Advice(text, min(found.kept_bytes, working))
    what = "micro-batches" if found.pipelined else "batches"
    more = " and more of them" if found.pipelined else ""
    yield Advice(f"smaller {what}{more}: activations shrink with them", waiting + working)


def _about_variables(profile: machine.Profile, found: _Found) -> Iterator[Advice]:
    if profile.target.remote_bytes_per_second:
        text = (
            "keep the optimizer's state in streaming memory: "
            "pipeline(offload_weight_update_variables=True)"
        )
        yield Advice(text, found.state_bytes)
        text = (
            "keep gradient accumulators in streaming memory: "
            "pipeline(offload_gradient_accumulation_buffers=True)"
        )
        yield Advice(text, found.accumulator_bytes)
    replicas = profile.replication_factor
    text = (
        "keep an equal part of the optimizer's state on each replica: "
        "pipeline(replicated_optimizer_state_sharding=True)"
    )
    yield Advice(text, found.state_bytes - found.state_bytes // replicas)
    single = sum(t.total_bytes for t in profile.memory.biggest if t.name.startswith("float32"))
    yield Advice("half precision (float16): the largest tensors are float32", single // 2)


def _about_the_rest(profile: machine.Profile) -> Iterator[Advice]:
    used = profile.memory.by_category
    options = _options_of_products(profile)
    if options:
        text = f'a lower "availableMemoryProportion" in {options}: fewer temporaries, more cycles'
        yield Advice(text, used["temporaries"])
    code = ("vertex_code", "vertex_state", "control_code", "exchange_code")
    text = "fewer different operations: scan over equal layers, or functional_ops.outlined_function"
    yield Advice(text, sum(used[category] for category in code))


def _options_of_products(profile: machine.Profile) -> str:
    """The options of the products that the program has, if most of its cycles go to products."""
    cycles = dict.fromkeys(_PLANNED, 0.0)
    for operation in profile.operations:
        primitive = operation.name.split()[0]
        if primitive in cycles:
            cycles[primitive] += operation.cycles
    most = sum(operation.cycles for operation in profile.operations) / 2
    there = [options for primitive, options in _PLANNED.items() if cycles[primitive]]
    return " or ".join(there) if sum(cycles.values()) > most else ""


def _look(program: ir.Program) -> _Found:
    nodes = list(ir.walk(program.body))
    loops = [n for n in nodes if isinstance(n, ir.Repeat) and n.pipeline is not None]
    tasks = [n for n in nodes if isinstance(n, ir.Task)]
    updates = [task for task in tasks if task.spec.kind is pipelines.Kind.UPDATE]
    remote = {n.kept for n in nodes if isinstance(n, ir.Store) and n.storage.remote}
    for repeat in (n for n in nodes if isinstance(n, ir.Repeat)):
        remote.update(carry.entering for carry in repeat.carry if carry.initial in remote)
    in_pipelines = {value for loop in loops for value in ir.reads(loop)}
    sums = {c.final for loop in loops for c in loop.carry if c.initial not in remote}
    read = {value for task in updates for value in ir.reads(task)}
    loaded = {node.value for node in nodes if isinstance(node, ir.Load)}
    finals = {carry.final for loop in loops for carry in loop.carry}
    state = read - in_pipelines - remote - loaded - finals
    inputs, initial = set(program.inputs), _initial(nodes)
    made = {value for value in state if initial.get(value, value) not in inputs}
    copies = (n for n in nodes if isinstance(n, ir.Copy) and n.source == HOST)
    arguments = [value for node in copies for value in node.values if value in inputs]
    derivatives = Derivatives(program)
    return _Found(
        pipelined=bool(loops),
        training=bool(updates),
        kept_bytes=0 if loops or derivatives.recomputes else derivatives.kept_bytes,
        state_bytes=_bytes(program, state),
        accumulator_bytes=_bytes(program, sums),
        lasting_bytes=_bytes(program, [*arguments, *made, *sums]),
    )


def _initial(nodes: Iterable[ir.Node]) -> dict[ir.ValueId, ir.ValueId]:
    """What each loop variable starts with."""
    loops = (node for node in nodes if isinstance(node, ir.Repeat))
    return {carry.entering: carry.initial for loop in loops for carry in loop.carry}


def _bytes(program: ir.Program, values: Iterable[ir.ValueId]) -> int:
    return sum(jaxpr.size_in_bytes(program.avals[value]) for value in values)
