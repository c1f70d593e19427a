"""The changes that could reduce a program's memory, each as a function of the model's inputs."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ipujax.report.advice.change import Case, Change, Source, apply_model_cut
from ipujax.report.advice.costly_changes import list_costly_changes
from ipujax.report.advice.evidence import CODE, Evidence
from ipujax.report.advice.work_space_changes import list_work_space_changes
from lowering import ir, jaxpr, machine, schedules, size_in_bytes, variants


def list_memory_changes(
    case: Case, profile: machine.Profile, worst: Evidence, min_saved_bytes: float
) -> list[Change]:
    """Returns the changes not made yet that may reduce memory, the cheapest for a user first.

    Args:
      case: the program as it is.
      profile: its modelled profile.
      worst: evidence of the IPU with the fullest tile.
      min_saved_bytes: changes that cannot save as many bytes are left out.
    """
    changes: list[Change] = []
    if case.source is not None:
        changes += _list_storage_changes(profile, worst, min_saved_bytes)
        changes += _list_stage_changes(case, profile)
    if worst.held["temporaries"] >= min_saved_bytes:
        changes += list_work_space_changes(case, profile)
    if case.source is not None:
        changes += _list_recomputation_changes(case.source, worst, min_saved_bytes)
        changes += _list_pipeline_changes(case.source, profile, worst, min_saved_bytes)
        changes += list_costly_changes(case, profile, worst, min_saved_bytes)
    changes += _list_code_changes(case, profile, worst, min_saved_bytes)
    # Recomputation leaves the others that are about activations little to do.
    return sorted(changes, key=lambda change: change.rule != "recompute")


def _list_recomputation_changes(
    source: Source, worst: Evidence, min_saved_bytes: float
) -> Iterator[Change]:
    """Offers to recompute activations in backward passes, in pipelines and outside."""
    waiting_bytes = (
        min(worst.held["fifos"], worst.room_bytes) if worst.training else worst.kept_bytes
    )
    if waiting_bytes >= min_saved_bytes and not source.options.allow_recompute:
        yield Change(
            "recompute",
            "recompute activations instead of keeping them: IPUConfig.allow_recompute = True",
            "recompute (IPUConfig.allow_recompute)",
            lambda case: case.with_compiler_options(allow_recompute=True),
        )


def _list_pipeline_changes(
    source: Source, profile: machine.Profile, worst: Evidence, min_saved_bytes: float
) -> Iterator[Change]:
    """Offers pipelines that keep fewer activations between forward and backward pass."""
    specs = [spec for spec in variants.pipelines_of(source.closed) if spec.training]
    if not specs or min(worst.held["fifos"], worst.room_bytes) < min_saved_bytes:
        return
    if any(spec.schedule is schedules.grouped for spec in specs):
        yield Change(
            "schedule",
            "let fewer micro-batches wait: "
            "pipeline(pipeline_schedule=PipelineSchedule.Interleaved)",
            "PipelineSchedule.Interleaved",
            _change_training_pipelines(schedule=schedules.interleaved),
        )
    has_remote_memory = profile.target.remote_bytes_per_second
    if has_remote_memory and not all(spec.offload_activations for spec in specs):
        yield Change(
            "offload_activations",
            "keep waiting activations in streaming memory: pipeline(offload_activations=True)",
            "offload_activations",
            _change_training_pipelines(offload_activations=True),
        )


def _list_storage_changes(
    profile: machine.Profile, worst: Evidence, min_saved_bytes: float
) -> Iterator[Change]:
    """Offers to keep optimizer state and gradient accumulators elsewhere between updates."""
    sharding_replicas = profile.replication_factor // profile.instances
    offloadable_bytes = worst.state_bytes if profile.target.remote_bytes_per_second else 0
    if offloadable_bytes >= min_saved_bytes:
        yield Change(
            "offload_state",
            "keep the optimizer's state in streaming memory: "
            "pipeline(offload_weight_update_variables=True)",
            "offload_weight_update_variables",
            _change_state_storage("state", remote=True),
        )
    if offloadable_bytes >= min_saved_bytes and sharding_replicas > 1:
        yield Change(
            "shard_state",
            "keep an equal part of the optimizer's state on each replica: "
            "pipeline(replicated_optimizer_state_sharding=True)",
            "replicated_optimizer_state_sharding",
            _change_state_storage("state", remote=True, sharded=True),
        )
    if profile.target.remote_bytes_per_second and worst.accumulator_bytes >= min_saved_bytes:
        yield Change(
            "offload_accumulators",
            "keep gradient accumulators in streaming memory: "
            "pipeline(offload_gradient_accumulation_buffers=True)",
            "offload_gradient_accumulation_buffers",
            _change_state_storage("sums", remote=True),
        )


def _change_training_pipelines(**pipeline_options: Any) -> Callable[[Case], Case]:
    """Returns a change that sets options of every pipeline that trains."""

    def set_pipeline_options(closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
        return variants.change_pipeline_specs(
            closed, lambda spec: dc.replace(spec, **pipeline_options) if spec.training else spec
        )

    return lambda case: case.with_function_change(set_pipeline_options)


def _change_state_storage(stored_values: str, **storage_options: bool) -> Callable[[Case], Case]:
    return lambda case: case.with_function_change(
        lambda closed: variants.move_values_to_other_memory(
            closed, stored_values, **storage_options
        )
    )


def _list_stage_changes(case: Case, profile: machine.Profile) -> Iterator[Change]:
    """Offers more equal stages, and more of them, assuming that recomputation is on."""
    source, ipus = case.source, profile.num_ipus
    if source is None or not any(spec.training for spec in variants.pipelines_of(source.closed)):
        return
    pipelines = [node for node in ir.walk_nodes(case.program.body) if isinstance(node, ir.Pipeline)]
    accumulators = [carry.entering for pipeline in pipelines for carry in pipeline.carry]
    gradients = sum(size_in_bytes(case.program.avals[value]) for value in accumulators)
    bytes_per_gradient_byte = profile.memory.by_category["variables"] / max(gradients, 1)
    needed_bytes_per_tile = int(profile.memory.peak_bytes.sum()) // profile.target.tiles_per_ipu
    for times in (1, 2, 4):
        recut = variants.recut_pipeline(
            source.closed, times * ipus, bytes_per_gradient_byte, recomputes=True
        )
        if recut is not None:
            yield _describe_model_cut(recut, ipus)
        if times > 1 and needed_bytes_per_tile <= times * ipus * profile.memory.limit:
            return


def _describe_model_cut(recut: variants.Recut, ipus: int) -> Change:
    counts_before, counts_after = (
        ", ".join(map(str, counts)) for counts in (recut.before, recut.after)
    )
    stage_sizes = (
        f"with {counts_after} products and convolutions of the forward pass (now {counts_before})"
    )
    needs_more_ipus = recut.ipus > ipus
    count = f", gradient_accumulation_count={recut.micro_batches}"
    text = (
        f"more stages, one on each of {recut.ipus} IPUs{count}: {stage_sizes}"
        if needs_more_ipus
        else f"cut the model into more equal stages: {stage_sizes}"
    )
    return Change(
        "more_ipus" if needs_more_ipus else "split_stages",
        text,
        f"{recut.ipus} IPUs" if needs_more_ipus else "more equal stages",
        functools.partial(apply_model_cut, recut),
        first=True,
        ipus=recut.ipus,
    )


def _list_code_changes(
    case: Case, profile: machine.Profile, worst: Evidence, min_saved_bytes: float
) -> Iterator[Change]:
    """Offers one copy of the code for operations that are alike."""
    lacks_code = profile.memory.most_code_bytes > profile.memory.code_limit
    if case.options.outlines or not (
        lacks_code or sum(worst.held[n] for n in CODE) >= min_saved_bytes
    ):
        return
    yield Change(
        "less_code",
        "share the code of equal operations: IPUConfig.optimizations.enable_graph_outlining = True",
        "enable_graph_outlining",
        lambda case: dc.replace(case, options=dc.replace(case.options, outlines=True)),
    )
