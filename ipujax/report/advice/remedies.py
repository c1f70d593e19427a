"""What would make a cost smaller: sentences with numbers."""

from __future__ import annotations

from collections.abc import Mapping

from ipujax.report.advice.facts import Facts
from ipujax.report.advice.tally import Total
from lowering import machine, schedules

_TIMES = 4  # as many micro-batches as now
PRODUCTS = ("dot_general", "conv_general_dilated")
"""What the units for products work on."""

_SMALL = 2.0  # x the fixed cost of an exchange
_FEW_TILES = 0.5
_IO_TILES = 32
_WORTH = 0.1  # of the cost; a remedy that takes less off it is none
_GAIN = 0.01  # of a call; less is not worth another schedule
_SMALL_PRODUCT = 0.05  # of the peak; below, a product waits more than it multiplies
_SMALL_STEPS = 10  # x a sync
_HALVES = "float16 where its precision is enough"


def times(ratio: float) -> str:
    """As `1.5 x`, or in words where that would be `1 x`."""
    return "as long as" if f"{ratio:.2g}" in ("1", "0.99") else f"{ratio:.2g} x"


def about_bubble(facts: Facts) -> str:
    """More micro-batches: what a schedule idles at its ends stays, and what lies between grows."""
    lines, other = facts.profile.pipeline, _by_other_schedule(facts)
    found = [other] if other else []
    more = facts.more_micro_batches(_TIMES)
    if more is not None and lines is not None:
        faster = _TIMES * facts.profile.cycles / more.cycles
        found.append(
            f"{_more(lines)}: the bubble goes from {lines.bubble_fraction:.1%} to "
            f"{more.bubble_fraction:.1%} of the grid, modelled {faster:.2f} x as many "
            "micro-batches a second; smaller ones would use the units less"
        )
    return "; or ".join(found) or "fewer stages, each on more than one IPU, or more replicas"


def _more(lines: machine.PipelineProfile) -> str:
    now = lines.micro_batches
    return f"gradient_accumulation_count {now} -> {_TIMES * now} with micro-batches as large as now"


def about_sharing(facts: Facts) -> str:
    """A schedule whose IPUs do the same in each tick."""
    return _by_other_schedule(facts) or (
        "none by the schedule alone: no other that fits is modelled faster; "
        "fewer stages wait less for one another"
    )


def _by_other_schedule(facts: Facts) -> str:
    other, now = facts.other_schedule, int(facts.profile.cycles)
    if other is None or now - other.cycles < _GAIN * now:
        return ""
    return (
        f"{other.text}: modelled, a call takes {other.cycles:,} cycles instead of {now:,} "
        f"({other.cycles / now - 1:+.1%}){_fuller(facts, other.fullest_bytes)}"
    )


def _fuller(facts: Facts, fullest: int) -> str:
    now = int(facts.profile.memory.tile_peak_bytes.max())
    return f", and the fullest tile holds {fullest:,} bytes instead of {now:,}" * (fullest > now)


def stages_of(schedule: schedules.Schedule, ipu: int) -> str:
    """Whose work an IPU does, with the verb."""
    own = [stage for stage, group in enumerate(schedule.ipus) if ipu in group]
    return f"stage {own[0]} takes" if len(own) == 1 else f"the {len(own)} stages of IPU {ipu} take"


def about_imbalance(work: Mapping[int, int], schedule: schedules.Schedule) -> str:
    """Layers from one stage to another."""
    mean = sum(work.values()) / len(work)
    slowest, fastest = (choose(work, key=lambda ipu: work[ipu]) for choose in (max, min))
    source, target = (_place(schedule, ipu) for ipu in (slowest, fastest))
    mapping = " or change the device_mapping" if schedule.stages > len(work) else ""
    return (
        f"move layers from {source} to {target}, which takes "
        f"{times(work[fastest] / max(mean, 1))} the mean{mapping}; in equal stages the longest "
        f"would take {mean / max(work[slowest], 1):.0%} of what it takes now"
    )


def _place(schedule: schedules.Schedule, ipu: int) -> str:
    own = [stage for stage, group in enumerate(schedule.ipus) if ipu in group]
    return f"stage {own[0]}" if len(own) == 1 else f"IPU {ipu}"


def about_unused(facts: Facts, count: int) -> str:
    """For IPUs that do nothing."""
    them = "it" if count == 1 else "them"
    if facts.profile.pipeline is not None:
        work = "a stage" if count == 1 else "stages"
    else:
        work = "a part of the work (ipu_shard, pipelining_ops.pipeline)"
    return f"give {them} {work}, or use fewer IPUs"


def about_waiting(facts: Facts) -> str:
    """For IPUs that wait outside of a pipeline."""
    lines = facts.profile.pipeline
    if lines is None:
        return "a pipeline (pipelining_ops.pipeline): shards work one after the other"
    return (
        "the same work on every IPU in what is not pipelined, such as the weight update; a larger "
        f"gradient_accumulation_count than {lines.micro_batches}, with micro-batches as large as "
        "now, makes that rarer"
    )


def about_exchange(facts: Facts, steps: Total) -> str:
    """Bytes, or the fixed cost of an exchange."""
    fixed = facts.profile.target.exchange_cycles
    if steps.average < _SMALL * fixed:
        return (
            f"fewer, larger operations: {fixed} cycles of each exchange are fixed, so a larger "
            "batch costs little more"
        )
    if "float32" in facts.dtypes(steps.name, steps.origin):
        return f"{_HALVES}: half the bytes to exchange"
    if steps.name in PRODUCTS:
        return "a larger batch: products grow with it, and weights are exchanged once all the same"
    return (
        f"operands of {steps.name} that lie alike: no transposes, slices or reshapes just before it"
    )


def about_sync(facts: Facts) -> str:
    """Syncs are by superstep, whatever the size of the operands."""
    what = "micro-batches" if facts.profile.pipeline else "batches"
    return f"larger {what}: more work for each step, and no more syncs"


def about_copies(facts: Facts) -> str:
    """Values that pass from IPU to IPU."""
    if "float32" in facts.copied_dtypes:
        return f"{_HALVES}: half the bytes to copy"
    if facts.profile.pipeline:
        return "cut the stages where fewer bytes pass from one to the next"
    return "fewer changes of the ipu_shard, so that fewer values pass"


def about_replicas(facts: Facts) -> str:
    """Collectives."""
    lines = facts.profile.pipeline
    if facts.shards_storage:
        return (
            "keep state whole where it fits: replicated sharding gathers it for every use, to save "
            "memory"
        )
    if lines is not None:
        return f"{_more(lines)}: the sum of gradients comes once for {_TIMES} times of them"
    sums = facts.merged_sums
    if not facts.options.merged_bytes and sums > 1:
        return (
            "optimizations.maximum_cross_replica_sum_buffer_size: one sum instead of the "
            f"{sums:,} small ones that an IPU makes at once"
        )
    return "sum less often: gradient accumulation over several batches"


def about_host(facts: Facts, cycles: int) -> str:
    """Queues."""
    options = facts.options
    spared = 0 if options.overlaps_io else facts.spared_by_io_tiles
    if spared >= _WORTH * cycles:
        tiles = options.io_tiles or _IO_TILES
        return (
            f"io_tiles.num_io_tiles = {tiles} and io_tiles.place_ops_on_io_tiles = True: queues "
            f"work beside compute, which hides up to {spared:,} cycles"
        )
    if "float32" in facts.queued_dtypes:
        return "queues of float16 or uint8, made float32 on the IPU: half or a quarter of the bytes"
    return "more work for each element, or elements of fewer bytes"


def about_remote(facts: Facts) -> str:
    """Offloading."""
    memory, target = facts.profile.memory, facts.profile.target
    ipu = int(memory.remote_bytes.argmax())
    bytes_ = int(memory.remote_bytes[ipu])
    room = memory.limit * target.tiles_per_ipu - int(memory.peak_bytes[ipu])
    if bytes_ and bytes_ < room:
        return (
            "no offloading (the pipeline's offload_ arguments): the "
            f"{_megabytes(bytes_)} of IPU {ipu} would fit in the "
            f"{_megabytes(room)} that its tiles have left"
        )
    if facts.profile.replication_factor > 1 and not facts.shards_storage:
        return (
            "replicated_optimizer_state_sharding=True: each of the "
            f"{facts.profile.replication_factor} replicas streams its part"
        )
    lines = facts.profile.pipeline
    if lines is not None:
        return f"{_more(lines)}: what the weight update needs is streamed for more of them at once"
    return "fewer loads and stores of remote buffers, of more bytes each"


def _megabytes(bytes_: int) -> str:
    return f"{bytes_ / 1e6:,.1f} MB"


def about_compute(
    facts: Facts, name: str, origin: str, operation: machine.OperationTotal | None
) -> str:
    """Cheaper numbers, more tiles, or more IPUs."""
    small = _is_small(facts, operation)
    if name in PRODUCTS and not small:
        faster = _faster_product(facts, name, origin)
        if faster:
            return faster
    tiles = facts.options.compute_target.tiles_per_ipu
    if operation is not None and 0 < operation.tiles < _FEW_TILES * tiles:
        return (
            f"larger operands, or a batch of them: only {operation.tiles:,} of {tiles:,} tiles work"
        )
    if small:
        return "larger batches, or several of these operations as one: each has little to do"
    if name not in PRODUCTS and "float32" in facts.dtypes(name, origin):
        return f"{_HALVES}: tiles load and store 64 bits at a time"
    return "share it out: over more replicas, or more stages of a pipeline"


def _is_small(facts: Facts, operation: machine.OperationTotal | None) -> bool:
    """Whether the fixed costs of an operation outweigh its work."""
    if operation is None or not operation.runs:
        return False
    if operation.flop_utilisation is not None and operation.name.startswith(PRODUCTS):
        return operation.flop_utilisation < _SMALL_PRODUCT
    return operation.cycles / operation.runs < _SMALL_STEPS * facts.profile.target.sync_cycles


def _faster_product(facts: Facts, name: str, origin: str) -> str:
    rates = dict(facts.profile.target.macs_per_cycle)
    dtypes = facts.dtypes(name, origin)
    single, half = rates["float32", "float32"], rates["float16", "float32"]
    quick = rates["float16", "float16"]
    if "float32" in dtypes and max(half, quick) > single:
        return f"{_HALVES}: a tile does {half} products a cycle instead of {single}" + (
            f", and {quick} with partials of float16" if quick > half else ""
        )
    if dtypes == {"float16"} and not facts.half_sums and quick > half:
        group = "matmuls" if name == "dot_general" else "convolutions"
        return (
            f'{group}.poplar_options["partialsType"] = "half" where that is precise enough: a tile '
            f"does {quick} products a cycle instead of {half}"
        )
    return ""
