"""What would make a cost smaller: sentences with numbers."""

from __future__ import annotations

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
_FIRST = "other schedules, and more micro-batches, once the program fits: they are not modelled yet"
_HALVES = "float16 where its precision is enough"


def times(ratio: float) -> str:
    """As `1.5 x`, or in words where that would be `1 x`."""
    return "as long as" if f"{ratio:.2g}" in ("1", "0.99") else f"{ratio:.2g} x"


def about_bubble(facts: Facts) -> str:
    """More micro-batches: what a schedule idles at its ends stays, and what lies between grows."""
    if not facts.fits:
        return _FIRST
    ways = [_by_other_schedule(facts)]
    lines, more = facts.profile.pipeline, facts.more_micro_batches(_TIMES)
    if more is not None and lines is not None:
        faster = _TIMES * facts.profile.cycles / more.cycles
        ways.append(
            f"{_more(lines)}: the bubble goes from {lines.bubble_fraction:.1%} to "
            f"{more.bubble_fraction:.1%} of the grid, modelled {faster:.2f} x as many "
            "micro-batches a second; smaller ones would use the units less"
        )
    fewer = "fewer stages, each on more than one IPU, or more replicas"
    return "; or ".join(filter(None, ways)) or fewer


def _more(lines: machine.PipelineProfile) -> str:
    now = lines.micro_batches
    return f"gradient_accumulation_count {now} -> {_TIMES * now} with micro-batches as large as now"


def about_sharing(facts: Facts) -> str:
    """A schedule whose IPUs do the same in each tick."""
    if not facts.fits:
        return _FIRST
    none = "none by the schedule alone: no other that fits is modelled faster"
    return _by_other_schedule(facts) or f"{none}; fewer stages wait less for one another"


def _by_other_schedule(facts: Facts) -> str:
    other, now = facts.other_schedule, int(facts.profile.cycles)
    if other is None or now - other.cycles < _GAIN * now:
        return ""
    fullest, before = other.fullest_bytes, int(facts.profile.memory.tile_peak_bytes.max())
    fuller = f", and the fullest tile holds {fullest:,} bytes instead of {before:,}"
    return (
        f"{other.text}: modelled, a call takes {other.cycles:,} cycles instead of {now:,} "
        f"({other.cycles / now - 1:+.1%}){fuller if fullest > before else ''}"
    )


def stages_of(schedule: schedules.Schedule, ipu: int) -> list[int]:
    """Whose work an IPU does."""
    return [stage for stage, group in enumerate(schedule.ipus) if ipu in group]


def about_imbalance(facts: Facts, schedule: schedules.Schedule) -> str:
    """Layers from one stage to another."""
    work = facts.waiting.work
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
    stages = stages_of(schedule, ipu)
    return f"stage {stages[0]}" if len(stages) == 1 else f"IPU {ipu}"


def about_unused(facts: Facts) -> str:
    """For IPUs that do nothing."""
    several = len(facts.waiting.unused_ipus) > 1
    stages = "stages" if several else "a stage"
    pipelined = facts.profile.pipeline is not None
    work = stages if pipelined else "a part of the work (ipu_shard, pipelining_ops.pipeline)"
    return f"give {'them' if several else 'it'} {work}, or use fewer IPUs"


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
        why = f"{fixed} cycles of each exchange are fixed, so a larger batch costs little more"
        return f"fewer, larger operations: {why}"
    if facts.could_be_half(facts.dtypes(steps)):
        return f"{_HALVES}: half the bytes to exchange"
    if steps.name in PRODUCTS:
        return "a larger batch: products grow with it, and weights are exchanged once all the same"
    alike = f"operands of {steps.name} that lie alike"
    return f"{alike}: no transposes, slices or reshapes just before it"


def about_sync(facts: Facts) -> str:
    """Syncs are by superstep, whatever the size of the operands."""
    what = "micro-batches" if facts.profile.pipeline else "batches"
    return f"larger {what}: more work for each step, and no more syncs"


def about_copies(facts: Facts) -> str:
    """Values that pass from IPU to IPU."""
    if facts.could_be_half(facts.copied_dtypes):
        return f"{_HALVES}: half the bytes to copy"
    if facts.profile.pipeline:
        return "cut the stages where fewer bytes pass from one to the next"
    return "fewer changes of the ipu_shard, so that fewer values pass"


def about_replicas(facts: Facts) -> str:
    """Collectives."""
    lines = facts.profile.pipeline
    if facts.shards_storage:
        why = "replicated sharding gathers it for every use, to save memory"
        return f"keep state whole where it fits: {why}"
    if lines is not None:
        return f"{_more(lines)}: the sum of gradients comes once for {_TIMES} times of them"
    sums = facts.merged_sums
    if not facts.options.merged_bytes and sums > 1:
        option = "optimizations.maximum_cross_replica_sum_buffer_size"
        return f"{option}: one sum instead of the {sums:,} small ones that an IPU makes at once"
    return "sum less often: gradient accumulation over several batches"


def about_host(facts: Facts, cycles: int) -> str:
    """Queues."""
    options = facts.options
    spared = 0 if options.overlaps_io else facts.spared_by_io_tiles
    if spared >= _WORTH * cycles:
        tiles = options.io_tiles or _IO_TILES
        asked = f"io_tiles.num_io_tiles = {tiles} and io_tiles.place_ops_on_io_tiles = True"
        return f"{asked}: queues work beside compute, which hides up to {spared:,} cycles"
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
            f"no offloading (the pipeline's offload_ arguments): the {bytes_ / 1e6:,.1f} MB of IPU "
            f"{ipu} would fit in the {room / 1e6:,.1f} MB that its tiles have left"
        )
    lines, replicas = facts.profile.pipeline, facts.profile.replication_factor
    if replicas > 1 and not facts.shards_storage:
        part = f"each of the {replicas} replicas streams its part"
        return f"replicated_optimizer_state_sharding=True: {part}"
    if lines is not None:
        return f"{_more(lines)}: what the weight update needs is streamed for more of them at once"
    return "fewer loads and stores of remote buffers, of more bytes each"


def about_compute(facts: Facts, steps: Total) -> str:
    """Cheaper numbers, more tiles, or more IPUs."""
    operation = next(iter(facts.operations(steps)), None)
    product = steps.name in PRODUCTS
    small = _is_small(facts, operation)
    faster = _faster_product(facts, steps) if product and not small else ""
    if faster:
        return faster
    tiles = facts.options.compute_target.tiles_per_ipu
    if operation is not None and 0 < operation.tiles < _FEW_TILES * tiles:
        busy = f"only {operation.tiles:,} of {tiles:,} tiles work"
        return f"larger operands, or a batch of them: {busy}"
    if small:
        return "larger batches, or several of these operations as one: each has little to do"
    if not product and facts.could_be_half(facts.dtypes(steps)):
        return f"{_HALVES}: tiles load and store 64 bits at a time"
    return "share it out: over more replicas, or more stages of a pipeline"


def _is_small(facts: Facts, operation: machine.OperationTotal | None) -> bool:
    """Whether the fixed costs of an operation outweigh its work."""
    if operation is None or not operation.runs:
        return False
    if operation.flop_utilisation is not None and operation.name.startswith(PRODUCTS):
        return operation.flop_utilisation < _SMALL_PRODUCT
    return operation.cycles / operation.runs < _SMALL_STEPS * facts.profile.target.sync_cycles


def _faster_product(facts: Facts, steps: Total) -> str:
    rates = dict(facts.profile.target.macs_per_cycle)
    dtypes = facts.dtypes(steps)
    single, half = rates["float32", "float32"], rates["float16", "float32"]
    quick = rates["float16", "float16"]
    if facts.could_be_half(dtypes) and max(half, quick) > single:
        quicker = f", and {quick} with partials of float16" if quick > half else ""
        return f"{_HALVES}: a tile does {half} products a cycle instead of {single}{quicker}"
    if dtypes == {"float16"} and not facts.half_sums and quick > half:
        group = "matmuls" if steps.name == "dot_general" else "convolutions"
        option = f'{group}.poplar_options["partialsType"] = "half" where that is precise enough'
        return f"{option}: a tile does {quick} products a cycle instead of {half}"
    return ""
