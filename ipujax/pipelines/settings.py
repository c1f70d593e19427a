"""The arguments of a pipeline, checked, in frozen data."""

from __future__ import annotations

import dataclasses as dc
import enum
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from ipujax.errors import (
    PipelineError,
    PipelineNotImplementedError,
    PipelineTypeError,
)
from ipujax.gradient_accumulation import (
    GradientAccumulationReductionMethod,
    parse_reduction_method,
)
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.optimizers._accumulation import storage_of
from ipujax.optimizers._checks import dtype_chooser
from ipujax.pipelines import values
from ipujax.pipelines.schedule_override import schedule_override
from ipujax.pipelines.stages import SPANS_ALL, Part
from lowering import pipelines, schedules, storage


class PipelineSchedule(enum.Enum):
    """How the stages of several micro-batches are interleaved on the IPUs.

    Grouped: all forward passes that can run together do, then the backward passes that can; a
      forward and a backward pass of different micro-batches run in the same step. Fast, and the
      most activations wait.
    Interleaved: forward and backward passes take turns; half as many activations wait.
    Sequential: one stage at a time, as if the model were sharded; for debugging.
    """

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """How activations are computed again, where `IPUConfig.allow_recompute` is set.

    Auto: RecomputeThenBackpropagate for Grouped and Interleaved, otherwise the other.
    RecomputeThenBackpropagate: a stage's whole forward pass, then its backward pass.
    RecomputeAndBackpropagateInterleaved: both as one kernel; honours `recomputation_checkpoint`.
    """

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class PipelineStageOptions:
    """Poplar options for the convolutions and matrix products of one stage.

    Args:
      convolution_options: option names to values, such as `availableMemoryProportion`.
      matmul_options: the same for matrix products.

    Raises:
      PipelineTypeError: (a `TypeError`) something that is no dict.
    """

    def __init__(
        self,
        convolution_options: dict[str, Any] | None = None,
        matmul_options: dict[str, Any] | None = None,
    ):
        for name, given in (
            ("convolution_options", convolution_options),
            ("matmul_options", matmul_options),
        ):
            if given is not None and not isinstance(given, dict):
                raise PipelineTypeError(f"{name} must be a dict, not {given!r}")
        self._options = {
            "convolution_options": dict(convolution_options or {}),
            "matmul_options": dict(matmul_options or {}),
        }

    @property
    def as_marks(self) -> pipelines.Options:
        """The options as a task carries them."""
        return tuple(
            (group, tuple(sorted((str(k), str(v)) for k, v in own.items())))
            for group, own in self._options.items()
            if own
        )


@dc.dataclass(frozen=True, kw_only=True)
class Settings:
    """What `pipeline` was asked for, once it has been checked.

    Attributes: as the arguments of `pipeline`, `stages` and `schedule` in the form that tracing
    and lowering take.
    """

    stages: tuple[tuple[Part, ...], ...]
    count: int
    repeat_count: int
    accumulation_dtype: Callable[[Any], Any]
    reduction: GradientAccumulationReductionMethod
    infeed_queue: IPUInfeedQueue | None
    outfeed_queue: IPUOutfeedQueue | None
    optimizer_function: Callable[..., Any] | None
    schedule: Any
    recomputation: pipelines.Recomputation
    forward_options: tuple[pipelines.Options, ...]
    backward_options: tuple[pipelines.Options, ...]
    update_options: pipelines.Options
    state_storage: storage.Storage
    weight_storage: storage.Storage
    may_shard_weights: bool
    accumulator_storage: storage.Storage
    offload_activations: bool
    outfeed_loss: bool
    accumulate_outfeed: bool
    outfeed_dtype: Callable[[Any], Any]
    outfeed_mask: tuple[bool, ...] | None
    name: str
    origin: str

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.optimizer_function is not None

    @property
    def ipus(self) -> tuple[tuple[int, ...], ...]:
        """The IPUs of each stage; () for one that spans all."""
        return tuple(
            tuple(part.ipu for part in parts if part.ipu != SPANS_ALL) for parts in self.stages
        )


_SCHEDULES = {
    PipelineSchedule.Grouped: schedules.grouped,
    PipelineSchedule.Interleaved: schedules.interleaved,
    PipelineSchedule.Sequential: schedules.sequential,
}

_FLAGS = (
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
    "continuous_weight_updates",
    "outfeed_loss",
    "accumulate_outfeed",
)


def check_settings(given: dict[str, Any], origin: str) -> Settings:
    """Checks the arguments of `pipeline`, by name.

    Raises:
      PipelineError: (a `ValueError`) arguments that contradict one another.
      PipelineTypeError: (a `TypeError`) arguments of a wrong type.
      PipelineNotImplementedError: (a `NotImplementedError`) what the original had not either.
    """
    given = given | {name: values.check.optional_flag(given[name], name) for name in _FLAGS}
    training = given["optimizer_function"] is not None
    serial = values.check.integer(
        given["batch_serialization_iterations"], "batch_serialization_iterations", 1
    )
    stages = _stages(given["computational_stages"], given["device_mapping"], serial)
    schedule, recomputation = _schedule(given, stages, serial)
    _check_outfeed(given, training)
    if given["continuous_weight_updates"]:
        raise PipelineNotImplementedError(
            "continuous_weight_updates is not implemented, nor was it in the original: gradients "
            "are accumulated over all micro-batches"
        )
    reduction = parse_reduction_method(given["reduction_method"])
    if serial > 1 and reduction is not GradientAccumulationReductionMethod.SUM:
        raise PipelineError(
            f"batch_serialization_iterations={serial} with reduction_method {reduction.name}: "
            "only SUM is defined for serialized batches"
        )
    forward, backward = (
        _stage_options(given[f"{phase}_propagation_stages_poplar_options"], phase, len(stages))
        for phase in ("forward", "backward")
    )
    return Settings(
        stages=stages,
        count=values.micro_batches(given["gradient_accumulation_count"]) * serial,
        repeat_count=values.check.integer(given["repeat_count"], "repeat_count", 1),
        accumulation_dtype=_dtype(given, "gradient_accumulation_dtype", jnp.floating),
        reduction=reduction,
        infeed_queue=_queue(given, "infeed_queue", IPUInfeedQueue),
        outfeed_queue=_queue(given, "outfeed_queue", IPUOutfeedQueue),
        optimizer_function=values.check.function(
            given["optimizer_function"], "optimizer_function", optional=True
        ),
        schedule=schedule,
        recomputation=recomputation,
        forward_options=forward,
        backward_options=backward,
        update_options=_one_option(
            given["weight_update_poplar_options"], "weight_update_poplar_options"
        ),
        **_storages(given, serial),
        outfeed_loss=bool(given["outfeed_loss"]),
        accumulate_outfeed=bool(given["accumulate_outfeed"]),
        outfeed_dtype=_dtype(given, "accumulate_outfeed_dtype", jnp.number),
        outfeed_mask=values.mask(given["outfeed_mask"]),
        name=values.check.instance(given["name"], str, "name", optional=True) or "pipeline",
        origin=origin,
    )


def _queue(given: dict[str, Any], name: str, kind: type) -> Any:
    return values.check.instance(given[name], kind, name, optional=True)


def _dtype(given: dict[str, Any], name: str, kind: Any) -> Callable[[Any], Any]:
    return dtype_chooser(given[name], name, kind, PipelineTypeError)


def _stages(given: Any, mapping: Any, serial: int) -> tuple[tuple[Part, ...], ...]:
    if not isinstance(given, (list, tuple)):
        raise PipelineTypeError(
            f"computational_stages must be a list or tuple of functions, not {given!r}"
        )
    groups = [list(s) if isinstance(s, (list, tuple)) else [s] for s in given]
    if len(groups) < 2:
        raise PipelineError(f"a pipeline needs at least 2 computational stages, not {len(groups)}")
    for number, group in enumerate(groups):
        if not group or not all(map(callable, group)):
            raise PipelineTypeError(
                f"computational_stages[{number}] must be a function, or a list of functions that "
                f"run concurrently, not {given[number]!r}"
            )
    ipus = _mapping(mapping, groups, given, serial)
    return tuple(
        tuple(Part(function, ipu) for function, ipu in zip(group, own, strict=True))
        for group, own in zip(groups, ipus, strict=True)
    )


def _mapping(mapping: Any, groups: list[Any], given: Any, serial: int) -> list[list[int]]:
    if mapping is None:
        numbers = iter(range(sum(map(len, groups))))
        return [[0 if serial > 1 else next(numbers) for _ in group] for group in groups]
    if not isinstance(mapping, (list, tuple)):
        raise PipelineTypeError(
            f"device_mapping must be a list or tuple with an IPU for each stage, not {mapping!r}"
        )
    if len(mapping) != len(groups):
        raise PipelineError(
            f"device_mapping has {len(mapping)} entries for {len(groups)} computational stages; "
            "it needs one for each"
        )
    ipus: list[list[int]] = []
    for number, (entry, group) in enumerate(zip(mapping, groups, strict=True)):
        own = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        concurrent = isinstance(given[number], (list, tuple))
        if concurrent != isinstance(entry, (list, tuple)) or len(own) != len(group):
            raise PipelineError(
                f"device_mapping[{number}]={entry!r} does not fit computational_stages[{number}], "
                f"which {'is a list of ' + str(len(group)) if concurrent else 'is one'} "
                f"function{'s' * (len(group) > 1)}"
            )
        ipus.append([_ipu(ipu, number) for ipu in own])
        if len(set(own)) < len(own):
            raise PipelineError(
                f"device_mapping[{number}]={entry!r}: concurrent functions need an IPU each"
            )
    if serial > 1 and len({ipu for own in ipus for ipu in own}) > 1:
        raise PipelineNotImplementedError(
            "batch serialization needs all stages on a single IPU, and device_mapping is "
            f"{mapping!r}; leave it out, or give all stages the same IPU"
        )
    return ipus


def _ipu(entry: Any, number: int) -> int:
    try:
        ipu = operator.index(entry) if not isinstance(entry, bool) else None
    except TypeError:
        ipu = None
    if ipu is None or ipu < SPANS_ALL:
        raise PipelineTypeError(
            f"device_mapping[{number}] must be the number of an IPU, or {SPANS_ALL} for a stage "
            f"that spans all of them, not {entry!r}"
        )
    return ipu


def _schedule(
    given: dict[str, Any], stages: Sequence[Any], serial: int
) -> tuple[Any, pipelines.Recomputation]:
    asked = schedule_override.value  # what `ipu.compare` tries in the place of the user's
    schedule = given["pipeline_schedule"] if asked is None else asked
    if schedule is None:
        schedule = PipelineSchedule.Sequential if serial > 1 else PipelineSchedule.Grouped
    known = isinstance(schedule, (PipelineSchedule, schedules.Schedule)) or callable(schedule)
    if not known:
        raise PipelineTypeError(
            "pipeline_schedule must be a PipelineSchedule, a function or Schedule of "
            f"ipujax.schedules, not {schedule!r}"
        )
    if serial > 1 and schedule is not PipelineSchedule.Sequential:
        raise PipelineNotImplementedError(
            f"batch_serialization_iterations={serial} is only supported with the Sequential "
            f"schedule, not with {schedule!r}"
        )
    mode = given["recomputation_mode"]
    mode = RecomputationMode.Auto if mode is None else mode
    if not isinstance(mode, RecomputationMode):
        raise PipelineTypeError(f"recomputation_mode must be a RecomputationMode, not {mode!r}")
    if mode is RecomputationMode.Auto:
        interleaved = schedule is PipelineSchedule.Sequential
    else:
        interleaved = mode is RecomputationMode.RecomputeAndBackpropagateInterleaved
    recomputation = (
        pipelines.Recomputation.AND_BACKPROPAGATE
        if interleaved
        else pipelines.Recomputation.THEN_BACKPROPAGATE
    )
    spec = (
        _SCHEDULES.get(schedule, schedule) if isinstance(schedule, PipelineSchedule) else schedule
    )
    if serial > 1:
        spec = functools.partial(schedules.sequential, batch_serialization=serial)
    return spec, recomputation


def _check_outfeed(given: dict[str, Any], training: bool) -> None:
    loss, mask = given["outfeed_loss"], values.mask(given["outfeed_mask"])
    for name, value in (("outfeed_loss", loss), ("outfeed_mask", mask)):
        if value and not training:
            raise PipelineError(f"{name} needs an optimizer_function, which defines the loss")
    if loss and mask:
        raise PipelineError("only one of outfeed_loss and outfeed_mask may be set")
    queue = given["outfeed_queue"]
    if loss and queue is None:
        raise PipelineError("outfeed_loss needs an outfeed_queue to send the losses to")
    if given["accumulate_outfeed"]:
        if queue is None:
            raise PipelineError("accumulate_outfeed needs an outfeed_queue")
        if getattr(queue, "outfeed_mode", None) is not IPUOutfeedMode.ALL:
            raise PipelineError(
                "accumulate_outfeed needs an outfeed_queue of mode IPUOutfeedMode.ALL: what is "
                "accumulated is sent once for each weight update"
            )


def _storages(given: dict[str, Any], serial: int) -> dict[str, Any]:
    offload = given["offload_weight_update_variables"]
    shard = bool(given["replicated_optimizer_state_sharding"])
    sharded_weights = given["replicated_weight_sharding"]
    return {
        "may_shard_weights": sharded_weights is None and serial > 1,
        "state_storage": storage_of(offload, shard, PipelineError),
        "weight_storage": storage.Storage(
            remote=bool(given["offload_weights"]), sharded=bool(sharded_weights)
        ),
        "accumulator_storage": storage.Storage(
            remote=bool(given["offload_gradient_accumulation_buffers"])
        ),
        "offload_activations": bool(given["offload_activations"]),
    }


def _stage_options(given: Any, phase: str, stages: int) -> tuple[pipelines.Options, ...]:
    name = f"{phase}_propagation_stages_poplar_options"
    if given is None:
        return ((),) * stages
    if not isinstance(given, (list, tuple)):
        raise PipelineTypeError(f"{name} must be a list or tuple, not {given!r}")
    if len(given) != stages:
        raise PipelineError(f"{name} has {len(given)} entries for {stages} computational stages")
    return tuple(_one_option(entry, f"{name}[{i}]") for i, entry in enumerate(given))


def _one_option(given: Any, name: str) -> pipelines.Options:
    if given is None:
        return ()
    if not isinstance(given, PipelineStageOptions):
        raise PipelineTypeError(f"{name} must be a PipelineStageOptions or None, not {given!r}")
    return given.as_marks
