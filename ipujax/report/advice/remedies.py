"""The remedies for costs: sentences with numbers on what would make a cost smaller."""

from __future__ import annotations

from ipujax.report.advice.facts import Facts
from ipujax.report.advice.tally import Total
from lowering import machine, schedules

_TIMES = 4  # as many micro-batches as now
PRODUCTS = ("dot_general", "conv_general_dilated")
"""The operations that the units for products run."""

_SMALL = 2.0  # x the fixed cost of an exchange
_FEW_TILES = 0.5
_IO_TILES = 32
_WORTH = 0.1  # of the cost; remedies that save less are not offered
_GAIN = 0.01  # of a call; a smaller gain is not worth another schedule
_SMALL_PRODUCT = 0.05  # of the peak; below that, fixed costs dominate a product
_SMALL_STEPS = 10  # x a sync
_FIRST = "other schedules, and more micro-batches, once the program fits: they are not modelled yet"
_HALVES = "float16 where its precision is enough"


def format_ratio_to_mean(ratio: float) -> str:
    """Formats a ratio as `1.5 x`, or in words where that would be `1 x`."""
    return "as long as" if f"{ratio:.2g}" in ("1", "0.99") else f"{ratio:.2g} x"


def remedy_for_bubble(facts: Facts) -> str:
    """Advises another schedule or more micro-batches, which make the bubble's share smaller."""
    if not facts.fits_in_memory:
        return _FIRST
    remedies = [_suggest_faster_schedule(facts)]
    pipeline, alternative = facts.profile.pipeline, facts.model_more_micro_batches(_TIMES)
    if alternative is not None and pipeline is not None:
        faster = _TIMES * facts.profile.cycles / alternative.cycles
        remedies.append(
            f"{_suggest_more_micro_batches(pipeline)}: the empty places of the "
            f"grid go from {pipeline.bubble_fraction:.1%} to {alternative.bubble_fraction:.1%}, "
            f"modelled {faster:.2f} x as many micro-batches a second; smaller ones would use the "
            "units less"
        )
    fallback = "fewer stages, each on more than one IPU, or more replicas"
    return "; or ".join(filter(None, remedies)) or fallback


def _suggest_more_micro_batches(pipeline: machine.PipelineProfile) -> str:
    micro_batches = pipeline.micro_batches
    return (
        f"gradient_accumulation_count {micro_batches} -> {_TIMES * micro_batches} with "
        "micro-batches as large as now"
    )


def remedy_for_mixed_directions(facts: Facts) -> str:
    """Advises a schedule in which all IPUs go the same way in each tick."""
    if not facts.fits_in_memory:
        return _FIRST
    no_schedule = "none by the schedule alone: no other that fits is modelled faster"
    return (
        _suggest_faster_schedule(facts) or f"{no_schedule}; fewer stages wait less for one another"
    )


def _suggest_faster_schedule(facts: Facts) -> str:
    alternative, cycles_now = facts.faster_schedule, int(facts.profile.cycles)
    if alternative is None or cycles_now - alternative.cycles < _GAIN * cycles_now:
        return ""
    fullest_bytes, fullest_bytes_now = (
        alternative.fullest_bytes,
        int(facts.profile.memory.tile_peak_bytes.max()),
    )
    fuller = (
        f", and the fullest tile holds {fullest_bytes:,} bytes instead of {fullest_bytes_now:,}"
    )
    return (
        f"{alternative.text}: modelled, a call takes {alternative.cycles:,} cycles instead of "
        f"{cycles_now:,} "
        f"({alternative.cycles / cycles_now - 1:+.1%})"
        f"{fuller if fullest_bytes > fullest_bytes_now else ''}"
    )


def stages_on_ipu(schedule: schedules.Schedule, ipu: int) -> list[int]:
    """Returns the stages that run on an IPU."""
    return [stage for stage, group in enumerate(schedule.ipus) if ipu in group]


def remedy_for_imbalance(facts: Facts, schedule: schedules.Schedule) -> str:
    """Advises a better cut, or to move layers from the slowest stage to the fastest."""
    cut, cycles = facts.better_cut, int(facts.profile.cycles)
    if cut is not None and cycles - cut.cycles >= _GAIN * cycles:
        return (
            f"stages={list(cut.starts)} in value_and_grad, and no marks of stages: the cut that "
            f"ipu.plan finds for this schedule; modelled, a call takes "
            f"{cut.cycles:,} cycles instead of {cycles:,} ({cut.cycles / cycles - 1:+.1%})"
        )
    call = facts.plan_call
    planned = f"{call}, without marks of stages, which searches all cuts; or " if call else ""
    work = facts.waiting.work
    mean = sum(work.values()) / len(work)
    slowest, fastest = (select(work, key=lambda ipu: work[ipu]) for select in (max, min))
    source, target = (_name_stage_or_ipu(schedule, ipu) for ipu in (slowest, fastest))
    mapping = " or change the device_mapping" if schedule.stages > len(work) else ""
    return (
        f"{planned}move layers from {source} to {target}, which takes "
        f"{format_ratio_to_mean(work[fastest] / max(mean, 1))} the mean{mapping}; in equal stages "
        f"the longest would take {mean / max(work[slowest], 1):.0%} of what it takes now"
    )


def _name_stage_or_ipu(schedule: schedules.Schedule, ipu: int) -> str:
    stages = stages_on_ipu(schedule, ipu)
    return f"stage {stages[0]}" if len(stages) == 1 else f"IPU {ipu}"


def remedy_for_unused_ipus(facts: Facts) -> str:
    """Advises what to do with IPUs that have no work."""
    has_several = len(facts.waiting.unused_ipus) > 1
    stages = "stages" if has_several else "a stage"
    is_pipelined = facts.profile.pipeline is not None
    work = stages if is_pipelined else "a part of the work (ipu_shard, pipelining_ops.pipeline)"
    return f"give {'them' if has_several else 'it'} {work}, or use fewer IPUs"


def remedy_for_waiting_ipus(facts: Facts) -> str:
    """Advises what to do about IPUs that wait outside of a pipeline."""
    pipeline = facts.profile.pipeline
    if pipeline is None:
        return "a pipeline (pipelining_ops.pipeline): shards work one after the other"
    return (
        "the same work on every IPU in what is not pipelined, such as the weight update; a larger "
        f"gradient_accumulation_count than {pipeline.micro_batches}, with micro-batches as large "
        "as now, makes that rarer"
    )


def remedy_for_exchange(facts: Facts, steps: Total) -> str:
    """Advises to exchange fewer bytes, or to exchange less often."""
    fixed = facts.profile.target.exchange_cycles + machine.SUPERSTEP_CYCLES
    if steps.average < _SMALL * fixed:
        reason = f"{fixed} cycles of each exchange are fixed, so a larger batch costs little more"
        return f"fewer, larger operations: {reason}"
    if facts.could_compute_in_half(facts.dtypes_of_steps(steps)):
        return f"{_HALVES}: half the bytes to exchange"
    if steps.name in PRODUCTS:
        return "a larger batch: products grow with it, and weights are exchanged once all the same"
    alike = f"operands of {steps.name} with the same tile mapping"
    return f"{alike}: no transposes, slices or reshapes just before it"


def remedy_for_sync(facts: Facts) -> str:
    """Advises larger batches, as syncs come with supersteps whatever the size of operands."""
    batch_word = "micro-batches" if facts.profile.pipeline else "batches"
    return f"larger {batch_word}: more work for each step, and no more syncs"


def remedy_for_copies(facts: Facts) -> str:
    """Advises to copy fewer bytes from IPU to IPU."""
    if facts.could_compute_in_half(facts.copied_dtypes):
        return f"{_HALVES}: half the bytes to copy"
    if facts.profile.pipeline:
        return "cut the stages where fewer bytes pass from one to the next"
    return "fewer changes of the ipu_shard, so that fewer values pass"


def remedy_for_replica_collectives(facts: Facts) -> str:
    """Advises fewer or larger collectives among replicas."""
    pipeline = facts.profile.pipeline
    if facts.shards_storage:
        reason = "replicated sharding gathers it for every use, to save memory"
        return f"keep state whole where it fits: {reason}"
    if pipeline is not None:
        return (
            f"{_suggest_more_micro_batches(pipeline)}: the sum of gradients comes once for "
            f"{_TIMES} times of them"
        )
    all_reduces = facts.mergeable_all_reduces
    if not facts.options.merged_bytes and all_reduces > 1:
        option = "optimizations.maximum_cross_replica_sum_buffer_size"
        return (
            f"{option}: one sum instead of the {all_reduces:,} small ones that an IPU makes at once"
        )
    return "sum less often: gradient accumulation over several batches"


def remedy_for_host_io(facts: Facts, cycles: int) -> str:
    """Advises I/O tiles, or fewer bytes in queues."""
    options = facts.options
    hidden_cycles = 0 if options.overlaps_io else facts.cycles_that_io_tiles_could_hide
    if hidden_cycles >= _WORTH * cycles:
        tiles = options.io_tiles or _IO_TILES
        setting = f"io_tiles.num_io_tiles = {tiles} and io_tiles.place_ops_on_io_tiles = True"
        return f"{setting}: queues work beside compute, which hides up to {hidden_cycles:,} cycles"
    if "float32" in facts.queued_dtypes:
        return "queues of float16 or uint8, made float32 on the IPU: half or a quarter of the bytes"
    return "more work for each element, or elements of fewer bytes"


def remedy_for_remote_memory(facts: Facts) -> str:
    """Advises to load and store less in streaming memory."""
    memory, target = facts.profile.memory, facts.profile.target
    ipu = int(memory.remote_bytes.argmax())
    bytes_ = int(memory.remote_bytes[ipu])
    free_bytes = memory.limit * target.tiles_per_ipu - int(memory.peak_bytes[ipu])
    if bytes_ and bytes_ < free_bytes:
        return (
            f"no offloading (the pipeline's offload_ arguments): the {bytes_ / 1e6:,.1f} MB of IPU "
            f"{ipu} would fit in the {free_bytes / 1e6:,.1f} MB that its tiles have left"
        )
    pipeline, replicas = facts.profile.pipeline, facts.profile.replication_factor
    if replicas > 1 and not facts.shards_storage:
        sharding_text = f"each of the {replicas} replicas streams its part"
        return f"replicated_optimizer_state_sharding=True: {sharding_text}"
    if pipeline is not None:
        return (
            f"{_suggest_more_micro_batches(pipeline)}: what the weight update needs is streamed "
            "for more of them at once"
        )
    return "fewer loads and stores of remote buffers, of more bytes each"


def remedy_for_compute(facts: Facts, steps: Total) -> str:
    """Advises cheaper numbers, more tiles or more IPUs for compute steps."""
    operation = next(iter(facts.operations_of_steps(steps)), None)
    is_product = steps.name in PRODUCTS
    is_small = _is_dominated_by_fixed_cost(facts, operation)
    product_remedy = _suggest_faster_product(facts, steps) if is_product and not is_small else ""
    if product_remedy:
        return product_remedy
    tiles = facts.options.compute_target.tiles_per_ipu
    if operation is not None and 0 < operation.tiles < _FEW_TILES * tiles:
        tile_use = f"only {operation.tiles:,} of {tiles:,} tiles work"
        return f"larger operands, or a batch of them: {tile_use}"
    if is_small:
        return "larger batches, or several of these operations as one: each has little to do"
    if not is_product and facts.could_compute_in_half(facts.dtypes_of_steps(steps)):
        return f"{_HALVES}: tiles load and store 64 bits at a time"
    return "divide it over more replicas, or more stages of a pipeline"


def _is_dominated_by_fixed_cost(facts: Facts, operation: machine.OperationTotal | None) -> bool:
    """Returns whether the fixed costs of an operation outweigh its work."""
    if operation is None or not operation.runs:
        return False
    if operation.flop_utilisation is not None and operation.name.startswith(PRODUCTS):
        return operation.flop_utilisation < _SMALL_PRODUCT
    return operation.cycles / operation.runs < _SMALL_STEPS * facts.profile.target.sync_cycles


def _suggest_faster_product(facts: Facts, steps: Total) -> str:
    rates = dict(facts.profile.target.macs_per_cycle)
    dtypes = facts.dtypes_of_steps(steps)
    single_rate, half_rate = rates["float32", "float32"], rates["float16", "float32"]
    half_partials_rate = rates["float16", "float16"]
    if facts.could_compute_in_half(dtypes) and max(half_rate, half_partials_rate) > single_rate:
        partials_hint = (
            f", and {half_partials_rate} with partials of float16"
            if half_partials_rate > half_rate
            else ""
        )
        return (
            f"{_HALVES}: a tile does {half_rate} products a cycle instead of "
            f"{single_rate}{partials_hint}"
        )
    if dtypes == {"float16"} and not facts.has_half_partials and half_partials_rate > half_rate:
        option_group = "matmuls" if steps.name == "dot_general" else "convolutions"
        option = (
            f'{option_group}.poplar_options["partialsType"] = "half" where that is precise enough'
        )
        return f"{option}: a tile does {half_partials_rate} products a cycle instead of {half_rate}"
    return ""
