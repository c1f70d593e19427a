"""What a user could change to need less memory, each as a function of what the model is given."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipujax.report.advice.change import Case, Change, Source, cut_again
from ipujax.report.advice.costly_changes import costly_changes
from ipujax.report.advice.evidence import CODE, Evidence
from lowering import ir, jaxpr, machine, schedules, size_in_bytes, variants

_DEFAULT_PROPORTION = 0.6  # Poplar's availableMemoryProportion
_PARTS = (2, 6, 20)  # of it, to be tried one after the other
_PLANNED = {
    "dot_general": ("matmuls.poplar_options", "matmul_proportion"),
    "conv_general_dilated": ("convolutions.poplar_options", "convolution_proportion"),
}


def changes(case: Case, profile: machine.Profile, worst: Evidence, least: float) -> list[Change]:
    """What is not in force yet and may help, what costs a user least first.

    Args:
      case: the program as it is.
      profile: what the model says of it.
      worst: of the IPU with the fullest tile.
      least: bytes; what cannot take away as much is left out.
    """
    found: list[Change] = []
    if case.source is not None:
        found += _of_storage(profile, worst, least)
        found += _of_stages(case, profile)
    if worst.held["temporaries"] >= least:
        found += _of_plans(case, profile, _PARTS)
    if case.source is not None:
        found += _of_recomputation(case.source, worst, least)
        found += _of_pipelines(case.source, profile, worst, least)
        found += costly_changes(case, profile, worst, least)
    found += _of_code(case, profile, worst, least)
    # Recomputation leaves the others that are about activations little to do.
    return sorted(found, key=lambda change: change.rule != "recompute")


def _of_recomputation(source: Source, worst: Evidence, least: float) -> Iterator[Change]:
    """What backward passes compute again, in pipelines and outside."""
    waiting = min(worst.held["fifos"], worst.room_bytes) if worst.training else worst.kept_bytes
    if waiting >= least and not source.options.allow_recompute:
        yield Change(
            "recompute",
            "recompute activations instead of keeping them: IPUConfig.allow_recompute = True",
            "recompute (IPUConfig.allow_recompute)",
            lambda case: case.compiled(allow_recompute=True),
        )


def _of_pipelines(
    source: Source, profile: machine.Profile, worst: Evidence, least: float
) -> Iterator[Change]:
    """What pipelines do with activations between the forward and the backward pass."""
    specs = [spec for spec in variants.pipelines_of(source.closed) if spec.training]
    if not specs or min(worst.held["fifos"], worst.room_bytes) < least:
        return
    if any(spec.schedule is schedules.grouped for spec in specs):
        yield Change(
            "schedule",
            "let fewer micro-batches wait: "
            "pipeline(pipeline_schedule=PipelineSchedule.Interleaved)",
            "PipelineSchedule.Interleaved",
            _asking(schedule=schedules.interleaved),
        )
    remote = profile.target.remote_bytes_per_second
    if remote and not all(spec.offload_activations for spec in specs):
        yield Change(
            "offload_activations",
            "keep waiting activations in streaming memory: pipeline(offload_activations=True)",
            "offload_activations",
            _asking(offload_activations=True),
        )


def _of_storage(profile: machine.Profile, worst: Evidence, least: float) -> Iterator[Change]:
    """Where state and sums wait between weight updates."""
    sharing = profile.replication_factor // profile.instances
    whole = worst.state_bytes if profile.target.remote_bytes_per_second else 0
    if whole >= least:
        yield Change(
            "offload_state",
            "keep the optimizer's state in streaming memory: "
            "pipeline(offload_weight_update_variables=True)",
            "offload_weight_update_variables",
            _keeping("state", remote=True),
        )
    if whole >= least and sharing > 1:
        yield Change(
            "shard_state",
            "keep an equal part of the optimizer's state on each replica: "
            "pipeline(replicated_optimizer_state_sharding=True)",
            "replicated_optimizer_state_sharding",
            _keeping("state", remote=True, sharded=True),
        )
    if profile.target.remote_bytes_per_second and worst.accumulator_bytes >= least:
        yield Change(
            "offload_accumulators",
            "keep gradient accumulators in streaming memory: "
            "pipeline(offload_gradient_accumulation_buffers=True)",
            "offload_gradient_accumulation_buffers",
            _keeping("sums", remote=True),
        )


def _asking(**asked: Any) -> Callable[[Case], Case]:
    """Of all pipelines that train."""

    def change(closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
        return variants.with_pipelines(
            closed, lambda spec: dc.replace(spec, **asked) if spec.training else spec
        )

    return lambda case: case.traced(change)


def _keeping(what: str, **asked: bool) -> Callable[[Case], Case]:
    return lambda case: case.traced(lambda closed: variants.with_storage(closed, what, **asked))


def _of_stages(case: Case, profile: machine.Profile) -> Iterator[Change]:
    """More equal stages, and more of them; recomputation is taken to be on, as it comes first."""
    source, ipus = case.source, profile.num_ipus
    if source is None or not any(spec.training for spec in variants.pipelines_of(source.closed)):
        return
    loops = [node for node in ir.walk(case.program.body) if isinstance(node, ir.Pipeline)]
    sums = [carry.entering for loop in loops for carry in loop.carry]
    gradients = sum(size_in_bytes(case.program.avals[value]) for value in sums)
    copies = profile.memory.by_category["variables"] / max(gradients, 1)
    needed = int(profile.memory.peak_bytes.sum()) // profile.target.tiles_per_ipu
    for times in (1, 2, 4):
        recut = variants.with_stages(source.closed, times * ipus, copies, recomputes=True)
        if recut is not None:
            yield _cut_again(recut, ipus)
        if times > 1 and needed <= times * ipus * profile.memory.limit:
            return


def _cut_again(recut: variants.Recut, ipus: int) -> Change:
    now, then = (", ".join(map(str, counts)) for counts in (recut.before, recut.after))
    where = f"with {then} products and convolutions of the forward pass (now {now})"
    more = recut.ipus > ipus
    count = f", gradient_accumulation_count={recut.micro_batches}"
    text = (
        f"more stages, one on each of {recut.ipus} IPUs{count}: {where}"
        if more
        else f"cut the model into more equal stages: {where}"
    )
    return Change(
        "more_ipus" if more else "split_stages",
        text,
        f"{recut.ipus} IPUs" if more else "more equal stages",
        functools.partial(cut_again, recut),
        first=True,
        ipus=recut.ipus,
    )


def _of_code(
    case: Case, profile: machine.Profile, worst: Evidence, least: float
) -> Iterator[Change]:
    """One code for operations that are alike."""
    lacks_code = profile.memory.most_code_bytes > profile.memory.code_limit
    if case.options.outlines or not (lacks_code or sum(worst.held[n] for n in CODE) >= least):
        return
    yield Change(
        "less_code",
        "share the code of equal operations: IPUConfig.optimizations.enable_graph_outlining = True",
        "enable_graph_outlining",
        lambda case: dc.replace(case, options=dc.replace(case.options, outlines=True)),
    )


def _of_plans(case: Case, profile: machine.Profile, parts: Sequence[int]) -> Iterator[Change]:
    """Less work space for products; of several parts the first, and behind it the others."""
    names = {operation.name.split()[0] for operation in profile.operations}
    products = {field: option for name, (option, field) in _PLANNED.items() if name in names}
    if not products or not parts:
        return
    asked = {field: getattr(case.options.plans, field) for field in products}
    present = {f: _DEFAULT_PROPORTION if p is None else p for f, p in asked.items()}
    tried = {field: round(value / parts[0], 3) for field, value in present.items()}
    if not all(tried.values()):
        return
    where = " and ".join(
        f"{tried[field]:g} in {option} (now {present[field]:g})"
        for field, option in products.items()
    )
    yield Change(
        "less_work_space",
        f'a lower "availableMemoryProportion": {where}',
        f"availableMemoryProportion {min(tried.values()):g}",
        _planning(tried),
        make_stronger=lambda: next(_of_plans(case, profile, parts[1:]), None),
    )


def _planning(tried: dict[str, float]) -> Callable[[Case], Case]:
    def apply(case: Case) -> Case:
        plans = dc.replace(case.options.plans, **tried)
        return dc.replace(case, options=dc.replace(case.options, plans=plans))

    return apply
