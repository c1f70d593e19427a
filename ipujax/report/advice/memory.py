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
    found, *others = gather(facts)
    if int(profile.memory.tile_peak_bytes.max()) <= profile.memory.limit:
        return tuple(_about_code(found))  # only the instructions are too many
    least = _LEAST_SHARE * found.peak_bytes
    helping = [_spared(profile, each, may_recompute) for each in others]
    entries = [
        dc.replace(entry, enough=_does(entry, found, others, helping))
        for entry in _rules(profile, found, may_recompute)
    ]
    entries += _about_ipus(facts, found)
    entries += _about_temporaries(facts, least)
    worth = [entry for entry in entries if entry.about_bytes >= least or entry.enough]
    return tuple(sorted(worth, key=lambda entry: -entry.about_bytes))


def _rules(profile: machine.Profile, found: Evidence, may_recompute: bool) -> Iterator[Advice]:
    """Those that speak of one IPU at a time."""
    yield from _about_activations(profile, found, may_recompute)
    yield from _about_variables(profile, found)
    yield from _about_code(found)


def _spared(profile: machine.Profile, found: Evidence, may_recompute: bool) -> dict[str, int]:
    return {entry.rule: entry.about_bytes for entry in _rules(profile, found, may_recompute)}


def _does(
    entry: Advice,
    found: Evidence,
    others: Sequence[Evidence],
    helping: Sequence[Mapping[str, int]],
) -> bool:
    """Whether a remedy takes enough off every IPU that lacks memory."""
    if entry.rule in _VAGUE or entry.about_bytes < found.need_bytes:
        return False
    pairs = zip(others, helping, strict=True)
    return all(spared.get(entry.rule, 0) >= other.need_bytes for other, spared in pairs)


def _about_ipus(facts: Facts, found: Evidence) -> Iterator[Advice]:
    profile, memory = facts.profile, facts.profile.memory
    capacity = memory.limit * profile.target.tiles_per_ipu
    needs = need_bytes(memory)
    room = [capacity - fullest * profile.target.tiles_per_ipu for fullest in _fullest(memory)]
    if sum(needs) <= sum(free for free in room if free > 0):
        yield Advice("move_work", _moving(facts, needs, room), found.need_bytes, True)
        return
    if found.peak_bytes <= capacity:
        return
    # Data is shared out; work space and code come with the operations of each IPU.
    data = sum(memory.by_category[name] for name in DATA)
    stays = found.peak_bytes - sum(found.held[name] for name in DATA)
    sizes = (2**i for i in range(1, _MOST_IPUS.bit_length()))
    enough = (n for n in sizes if n > profile.num_ipus and data / n + stays <= capacity)
    ipus = next(enough, None)
    if ipus is not None:
        how = "more pipeline stages" if found.pipelined else "ipu_shard, or a pipeline"
        text = f"split the model over at least {ipus} IPUs ({how})"
        yield Advice("more_ipus", text, found.peak_bytes - stays - data // ipus)
    elif found.held["temporaries"] > capacity:
        step = _worst_step(profile.liveness[found.ipu])
        text = f"smaller operands: work space of {step} fills an IPU, however many there are"
        yield Advice("smaller_operands", text, found.held["temporaries"])


def _fullest(memory: machine.Memory) -> list[int]:
    """The bytes of each IPU's fullest tile."""
    return memory.tile_peak_bytes.max(axis=1).tolist()


def _moving(facts: Facts, needs: Sequence[int], room: Sequence[int]) -> str:
    """From where to where: to the IPUs that have least to do, as long as there is room."""
    waits = waiting(facts.index, facts.profile)
    order = sorted(
        range(facts.profile.num_ipus), key=lambda ipu: (waits.work.get(ipu, 0), -room[ipu])
    )
    taking: list[int] = []
    for ipu in (ipu for ipu in order if room[ipu] > 0):
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
    profile: machine.Profile, found: Evidence, may_recompute: bool
) -> Iterator[Advice]:
    waiting = min(found.held["fifos"], found.room_bytes)
    if found.training and not may_recompute:
        text = "recompute activations instead of keeping them: IPUConfig.allow_recompute = True"
        yield Advice("recompute", text, waiting)
    if found.training and profile.target.remote_bytes_per_second:
        text = "keep waiting activations in streaming memory: pipeline(offload_activations=True)"
        cost = _streaming(profile, found.streamed_bytes, found.micro_batches)
        yield Advice("offload_activations", text + cost, waiting)
    text = "recompute activations instead of keeping them: jax.checkpoint around each layer"
    yield Advice("checkpoint_layers", text, min(found.kept_bytes, found.working_bytes))
    what = "micro-batches" if found.pipelined else "batches"
    more = " and more of them" if found.pipelined else ""
    shrinks = min(found.held["fifos"] + found.working_bytes, found.room_bytes)
    yield Advice(
        "smaller_batches",
        f"smaller {what}{more}: activations shrink with them; they use the units less",
        shrinks,
    )


def _about_variables(profile: machine.Profile, found: Evidence) -> Iterator[Advice]:
    state_room = found.room_bytes - found.gathered_bytes
    if profile.target.remote_bytes_per_second:
        text = (
            "keep the optimizer's state in streaming memory: "
            "pipeline(offload_weight_update_variables=True)"
        )
        text += _streaming(profile, found.state_bytes, found.updates)
        yield Advice("offload_state", text, min(found.state_bytes, state_room))
        text = (
            "keep gradient accumulators in streaming memory: "
            "pipeline(offload_gradient_accumulation_buffers=True)"
        )
        cost = _streaming(profile, found.accumulator_bytes, found.micro_batches)
        yield Advice(
            "offload_accumulators", text + cost, min(found.accumulator_bytes, found.room_bytes)
        )
    text = (
        "keep an equal part of the optimizer's state on each replica: "
        "pipeline(replicated_optimizer_state_sharding=True)"
    )
    elsewhere = found.state_bytes - found.state_bytes // profile.replication_factor
    yield Advice("shard_state", text, min(elsewhere, state_room))
    single = int(found.single_share * sum(found.held[name] for name in DATA))
    text = "half precision (float16) for variables and activations that are float32"
    yield Advice("half_precision", text, single // 2)


def _streaming(profile: machine.Profile, bytes_: int, times: int) -> str:
    """What it takes to move bytes out and back, beside a call as it is now."""
    target = profile.target
    cycles = times * round(target.cycles(2 * bytes_ / target.remote_bytes_per_second))
    beside = f", {cycles / profile.cycles:.2g} x the call as it is" if profile.cycles else ""
    return f"; streaming adds at least {cycles:,} cycles to a call{beside}"


def _about_temporaries(facts: Facts, least: float) -> Iterator[Advice]:
    """Models the program again with less work space for products, and tells what came of it."""
    profile, options = facts.profile, facts.options
    ipu, _ = profile.memory.worst
    names = {operation.name.split()[0] for operation in profile.operations}
    products = [_PLANNED[name] for name in _PLANNED if name in names]
    if not products or profile.memory.ipu_categories["temporaries"][ipu] < least:
        return
    given = {field: getattr(options.plans, field) for _, field in products}
    present = {f: _DEFAULT_PROPORTION if p is None else p for f, p in given.items()}
    for part in _TRIED:
        tried = {field: round(value / part, 3) for field, value in present.items()}
        plans = dc.replace(options.plans, **tried)
        other = machine.model(facts.program, dc.replace(options, plans=plans))
        spared = int(profile.memory.peak_bytes[ipu] - other.memory.peak_bytes[ipu])
        if spared >= least:
            where = " and ".join(
                f"{tried[field]:g} in {options_} (now {present[field]:g})"
                for options_, field in products
            )
            slower = other.cycles / max(profile.cycles, 1)
            # Two digits do not tell it from one.
            price = "about as many" if abs(slower - 1) < 0.05 else f"{slower:.2g} x the"
            text = f'a lower "availableMemoryProportion": {where}, for {price} cycles'
            yield Advice("less_work_space", text, spared, other.memory.fits)
            return


def _about_code(found: Evidence) -> Iterator[Advice]:
    code = ("vertex_code", "vertex_state", "control_code", "exchange_code")
    text = "fewer different operations: scan over equal layers, or functional_ops.outlined_function"
    yield Advice("less_code", text, sum(found.held[category] for category in code))
