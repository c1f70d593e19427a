"""What would help a program that does not fit: rules over what the machine model found.

Each rule looks at the numbers and says nothing where its remedy would not lower the peak of the IPU
with the fullest tile. The bytes of an advice are those that it can take off that IPU at most.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping, Sequence

from ipujax.report.advice.evidence import DATA, Evidence, gather
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Advice, need_bytes
from ipujax.report.advice.waiting import waiting
from ipujax.report.words import size
from lowering import machine

_LEAST_SHARE = 0.05  # of the peak; less than that is not worth a line
_MOST_IPUS = 64
_DEFAULT_PROPORTION = 0.6  # Poplar's availableMemoryProportion
_VAGUE = ("smaller_batches", "less_code", "half_precision", "checkpoint_layers")
"""Rules whose bytes are a bound that nobody reaches: how far they go is for the user to try."""

_OFFLOADS = {
    "offload_activations": ("waiting activations", "offload_activations"),
    "offload_state": ("the optimizer's state", "offload_weight_update_variables"),
    "offload_accumulators": ("gradient accumulators", "offload_gradient_accumulation_buffers"),
}
"""By rule, what streaming memory could keep, and the pipeline's option for that."""

_TRIED = (2, 6)  # parts of it that are modelled, until one helps
_PLANNED = {
    "dot_general": ("matmuls.poplar_options", "matmul_proportion"),
    "conv_general_dilated": ("convolutions.poplar_options", "convolution_proportion"),
}


def advice(facts: Facts, *, may_recompute: bool) -> tuple[Advice, ...]:
    """What would help, the largest effect first.

    Args:
      facts: what was modelled, and what came of it.
      may_recompute: whether `IPUConfig.allow_recompute` is set already.
    """
    profile = facts.profile
    worst, *others = gather(facts)
    if int(profile.memory.tile_peak_bytes.max()) <= profile.memory.limit:
        return tuple(_about_code(worst))  # only the instructions are too many
    least = _LEAST_SHARE * worst.peak_bytes
    helping = [
        (each.need_bytes, {e.rule: e.about_bytes for e in _rules(profile, each, may_recompute)})
        for each in others
    ]
    entries = [
        dc.replace(entry, enough=_does(entry, worst, helping))
        for entry in _rules(profile, worst, may_recompute)
    ]
    entries += _about_ipus(facts, worst)
    entries += _about_temporaries(facts, least)
    worth = [entry for entry in entries if entry.about_bytes >= least or entry.enough]
    return tuple(sorted(worth, key=lambda entry: -entry.about_bytes))


def _rules(profile: machine.Profile, evidence: Evidence, may_recompute: bool) -> Iterator[Advice]:
    """Those that speak of one IPU at a time."""
    yield from _about_activations(profile, evidence, may_recompute)
    yield from _about_variables(profile, evidence)
    yield from _about_code(evidence)


def _does(entry: Advice, worst: Evidence, others: Sequence[tuple[int, Mapping[str, int]]]) -> bool:
    """Whether a remedy takes enough off every IPU that lacks memory.

    Args:
      entry: the remedy.
      worst: of the IPU that it is about.
      others: for each of the others, how much must go, and how much does by each rule.
    """
    if entry.rule in _VAGUE or entry.about_bytes < worst.need_bytes:
        return False
    return all(spared.get(entry.rule, 0) >= need for need, spared in others)


def _about_ipus(facts: Facts, evidence: Evidence) -> Iterator[Advice]:
    profile, memory = facts.profile, facts.profile.memory
    capacity = memory.limit * profile.target.tiles_per_ipu
    needs = need_bytes(memory)
    fullest: list[int] = memory.tile_peak_bytes.max(axis=1).tolist()
    room = [capacity - bytes_ * profile.target.tiles_per_ipu for bytes_ in fullest]
    if sum(needs) <= sum(free for free in room if free > 0):
        yield Advice("move_work", _moving(facts, needs, room), evidence.need_bytes, True)
        return
    if evidence.peak_bytes <= capacity:
        return
    # Data is shared out; work space and code come with the operations of each IPU.
    data = sum(memory.by_category[name] for name in DATA)
    stays = evidence.peak_bytes - sum(evidence.held[name] for name in DATA)
    sizes = (2**i for i in range(1, _MOST_IPUS.bit_length()))
    enough = (n for n in sizes if n > profile.num_ipus and data / n + stays <= capacity)
    ipus = next(enough, None)
    if ipus is not None:
        how = "more pipeline stages" if evidence.pipelined else "ipu_shard, or a pipeline"
        text = f"split the model over at least {ipus} IPUs ({how})"
        yield Advice("more_ipus", text, evidence.peak_bytes - stays - data // ipus)
    elif evidence.held["temporaries"] > capacity:
        step = _worst_step(profile.liveness[evidence.ipu])
        text = f"smaller operands: work space of {step} fills an IPU, however many there are"
        yield Advice("smaller_operands", text, evidence.held["temporaries"])


def _moving(facts: Facts, needs: Sequence[int], room: Sequence[int]) -> str:
    """From where to where: to the IPUs that have least to do, as long as there is room."""
    waits = waiting(facts.index, facts.profile)
    free = (ipu for ipu, bytes_ in enumerate(room) if bytes_ > 0)
    taking: list[int] = []
    for ipu in sorted(free, key=lambda ipu: (waits.work.get(ipu, 0), -room[ipu])):
        if sum(room[taker] for taker in taking) < sum(needs):
            taking.append(ipu)
    sources = [f"IPU {ipu} ({size(need)} too many)" for ipu, need in enumerate(needs) if need]
    targets = [f"IPU {ipu} (room for {size(room[ipu])})" for ipu in taking]
    if waits.schedule is None:
        what, how = "work", "change the ipu_shard of some parts"
    else:
        shared = waits.schedule.stages > len(waits.work)
        what = "layers"
        how = "change the stages" + " or their device_mapping" * shared
    return f"move {what} from {' and '.join(sources)} to {' and '.join(targets)}: {how}"


def _worst_step(liveness: machine.Liveness) -> str:
    """The step that needs most, with the user's line."""
    line = liveness.origins[liveness.worst]
    return liveness.names[liveness.worst] + (f" ({line})" if line else "")


def _about_activations(
    profile: machine.Profile, evidence: Evidence, may_recompute: bool
) -> Iterator[Advice]:
    fifos, room = evidence.held["fifos"], evidence.room_bytes
    waiting, streamed = min(fifos, room), evidence.streamed_bytes
    recompute = "recompute activations instead of keeping them"
    if evidence.training and not may_recompute:
        yield Advice("recompute", f"{recompute}: IPUConfig.allow_recompute = True", waiting)
    if evidence.training:
        count = evidence.micro_batches
        yield from _offloaded("offload_activations", profile, streamed, count, waiting)
    kept = min(evidence.kept_bytes, evidence.working_bytes)
    yield Advice("checkpoint_layers", f"{recompute}: jax.checkpoint around each layer", kept)
    batches = "micro-batches and more of them" if evidence.pipelined else "batches"
    text = f"smaller {batches}: activations shrink with them; they use the units less"
    yield Advice("smaller_batches", text, min(fifos + evidence.working_bytes, room))


def _about_variables(profile: machine.Profile, evidence: Evidence) -> Iterator[Advice]:
    state, sums, room = evidence.state_bytes, evidence.accumulator_bytes, evidence.room_bytes
    state_room = room - evidence.gathered_bytes
    runs, micro_batches = evidence.updates, evidence.micro_batches
    yield from _offloaded("offload_state", profile, state, runs, min(state, state_room))
    yield from _offloaded("offload_accumulators", profile, sums, micro_batches, min(sums, room))
    text = (
        "keep an equal part of the optimizer's state on each replica: "
        "pipeline(replicated_optimizer_state_sharding=True)"
    )
    elsewhere = state - state // (profile.replication_factor // profile.instances)
    yield Advice("shard_state", text, min(elsewhere, state_room))
    single = int(evidence.single_share * sum(evidence.held[name] for name in DATA))
    text = "half precision (float16) for variables and activations that are float32"
    yield Advice("half_precision", text, single // 2)


def _offloaded(
    rule: str, profile: machine.Profile, bytes_: int, times: int, spared: int
) -> Iterator[Advice]:
    """If the chip has streaming memory; with what it takes to move bytes out and back so often."""
    target = profile.target
    if not target.remote_bytes_per_second:
        return
    cycles = times * round(target.cycles(2 * bytes_ / target.remote_bytes_per_second))
    beside = f", {cycles / profile.cycles:.2g} x the call as it is" if profile.cycles else ""
    cost = f"streaming adds at least {cycles:,} cycles to a call{beside}"
    what, option = _OFFLOADS[rule]
    yield Advice(rule, f"keep {what} in streaming memory: pipeline({option}=True); {cost}", spared)


def _about_temporaries(facts: Facts, least: float) -> Iterator[Advice]:
    """Models the program again with less work space for products, and tells what came of it."""
    profile, options = facts.profile, facts.options
    ipu, _ = profile.memory.worst
    names = {operation.name.split()[0] for operation in profile.operations}
    products = {field: option for name, (option, field) in _PLANNED.items() if name in names}
    if not products or profile.memory.ipu_categories["temporaries"][ipu] < least:
        return
    asked = {field: getattr(options.plans, field) for field in products}
    present = {f: _DEFAULT_PROPORTION if p is None else p for f, p in asked.items()}
    for part in _TRIED:
        tried = {field: round(value / part, 3) for field, value in present.items()}
        plans = dc.replace(options.plans, **tried)
        other = machine.model(facts.program, dc.replace(options, plans=plans))
        spared = int(profile.memory.peak_bytes[ipu] - other.memory.peak_bytes[ipu])
        if spared >= least:
            where = " and ".join(
                f"{tried[field]:g} in {option} (now {present[field]:g})"
                for field, option in products.items()
            )
            slower = other.cycles / max(profile.cycles, 1)
            # Two digits do not tell it from one.
            price = "about as many" if abs(slower - 1) < 0.05 else f"{slower:.2g} x the"
            text = f'a lower "availableMemoryProportion": {where}, for {price} cycles'
            yield Advice("less_work_space", text, spared, other.memory.fits)
            return


def _about_code(evidence: Evidence) -> Iterator[Advice]:
    code = ("vertex_code", "vertex_state", "control_code", "exchange_code")
    text = "fewer different operations: scan over equal layers, or functional_ops.outlined_function"
    yield Advice("less_code", text, sum(evidence.held[category] for category in code))
