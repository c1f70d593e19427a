"""What a pipeline is asked to do, in frozen data that fits together."""

from __future__ import annotations

import copy
import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ipujax.distribution.summation import Summation
from ipujax.distribution.summation import current as current_summation
from ipujax.errors import PipelineError, PipelineNotImplementedError, PipelineTypeError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod, parse_reduction_method
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.optimizers.accumulation import dtype_chooser, storage_of
from ipujax.optimizers.summing_optimizer import SummingOptimizer
from ipujax.pipelines import values
from ipujax.pipelines.arguments import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)
from ipujax.pipelines.stages import SPANS_ALL, Aval, Part, Pytree
from ipujax.pipelines.values import check
from lowering import jaxpr, ops, pipelines, schedules

StageFunction = Callable[..., Pytree]
AskedDtype = DTypeLike | Callable[[Aval], DTypeLike] | None
"""None for a variable's own dtype, another one, or a function from a variable to one."""
DtypeOf = Callable[[Aval], np.dtype[np.generic]]
Flag = bool | None
AskedSchedule = PipelineSchedule | schedules.Spec | None

_SCHEDULES = {
    PipelineSchedule.Grouped: schedules.grouped,
    PipelineSchedule.Interleaved: schedules.interleaved,
    PipelineSchedule.Sequential: schedules.sequential,
}


@dc.dataclass(frozen=True, kw_only=True, eq=False)
class PipelineRequest:
    """What `pipelining_ops.pipeline` is asked for, but for the arrays; to be run by `run_pipeline`.

    Attributes: as the arguments of `pipelining_ops.pipeline`, and
      origin: the user's line, for messages.
      summation: of the gradients of several workers; that of the strategy in force.

    Raises:
      PipelineError: (a `ValueError`) arguments that contradict one another.
      PipelineTypeError: (a `TypeError`) arguments of a wrong type.
      PipelineNotImplementedError: (a `NotImplementedError`) what the original had not either.
    """

    computational_stages: Sequence[StageFunction | Sequence[StageFunction]]
    gradient_accumulation_count: int | None
    gradient_accumulation_dtype: AskedDtype = None
    repeat_count: int = 1
    batch_serialization_iterations: int = 1
    infeed_queue: IPUInfeedQueue | None = None
    outfeed_queue: IPUOutfeedQueue | None = None
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None
    device_mapping: Sequence[int | Sequence[int]] | None = None
    pipeline_schedule: AskedSchedule = None
    recomputation_mode: RecomputationMode | None = None
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None
    weight_update_poplar_options: PipelineStageOptions | None = None
    offload_weight_update_variables: Flag = None
    replicated_optimizer_state_sharding: Flag = False
    offload_activations: Flag = None
    offload_gradient_accumulation_buffers: Flag = None
    replicated_weight_sharding: Flag = None
    offload_weights: Flag = None
    continuous_weight_updates: Flag = False
    outfeed_loss: Flag = False
    accumulate_outfeed: Flag = False
    accumulate_outfeed_dtype: AskedDtype = None
    outfeed_mask: Sequence[bool] | None = None
    name: str | None = None
    reduction_method: GradientAccumulationReductionMethod | str = (
        GradientAccumulationReductionMethod.SUM
    )
    origin: str = dc.field(default_factory=jaxpr.current_user_line)
    summation: Summation | None = dc.field(default_factory=current_summation)

    def __post_init__(self) -> None:
        checked: dict[str, object] = {"outfeed_mask": values.mask(self.outfeed_mask)}
        for name in (field.name for field in dc.fields(self) if field.type == "Flag"):
            checked[name] = check.optional_flag(getattr(self, name), name)
        for name in ("batch_serialization_iterations", "repeat_count"):
            checked[name] = check.integer(getattr(self, name), name, 1)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check.instance(self.infeed_queue, IPUInfeedQueue, "infeed_queue", optional=True)
        check.instance(self.outfeed_queue, IPUOutfeedQueue, "outfeed_queue", optional=True)
        check.instance(self.name, str, "name", optional=True)
        check.function(self.optimizer_function, "optimizer_function", optional=True)
        for name, member in vars(PipelineRequest).items():
            if isinstance(member, functools.cached_property):
                getattr(self, name)  # which raises if what it is made of does not fit together
        _check_outfeed(self)
        _check_implemented(self)

    # --- stages -----------------------------------------------------------------------------------

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.optimizer_function is not None

    @functools.cached_property
    def stages(self) -> tuple[tuple[Part, ...], ...]:
        """The functions of each stage, with their IPUs."""
        groups = _functions(self.computational_stages)
        ipus = _ipus(self, [len(group) for group in groups])
        pairs = (zip(*each, strict=True) for each in zip(groups, ipus, strict=True))
        return tuple(tuple(Part(function, ipu) for function, ipu in pair) for pair in pairs)

    @property
    def ipus(self) -> tuple[tuple[int, ...], ...]:
        """The IPUs of each stage; () for one that spans all."""
        return tuple(
            tuple(part.ipu for part in parts if part.ipu != SPANS_ALL) for parts in self.stages
        )

    @functools.cached_property
    def options(self) -> dict[pipelines.Kind, tuple[pipelines.Options, ...]]:
        """The Poplar options of each stage's tasks, and of the weight update."""
        by_kind = {
            pipelines.Kind.FORWARD: "forward_propagation_stages_poplar_options",
            pipelines.Kind.BACKWARD: "backward_propagation_stages_poplar_options",
        }
        count = len(self.stages)
        of_tasks = {k: _stage_options(getattr(self, n), n, count) for k, n in by_kind.items()}
        update = _one_option(self.weight_update_poplar_options, "weight_update_poplar_options")
        return {**of_tasks, pipelines.Kind.UPDATE: (update,)}

    # --- micro-batches ----------------------------------------------------------------------------

    @functools.cached_property
    def micro_batches(self) -> int:
        """How many make up one weight update; in inference, one execution."""
        count = values.micro_batches(self.gradient_accumulation_count)
        return count * self.batch_serialization_iterations

    @property
    def _chosen_schedule(self) -> PipelineSchedule | schedules.Spec:
        if self.pipeline_schedule is not None:
            return self.pipeline_schedule
        serial = self.batch_serialization_iterations > 1
        return PipelineSchedule.Sequential if serial else PipelineSchedule.Grouped

    @functools.cached_property
    def schedule(self) -> schedules.Spec:
        """What `schedules.build` takes."""
        chosen, serial = self._chosen_schedule, self.batch_serialization_iterations
        if not isinstance(chosen, (PipelineSchedule, schedules.Schedule)) and not callable(chosen):
            wanted = "a PipelineSchedule, a function or Schedule of ipujax.schedules"
            raise check.other_than(wanted, chosen, "pipeline_schedule")
        if serial == 1:
            return _SCHEDULES[chosen] if isinstance(chosen, PipelineSchedule) else chosen
        if chosen is not PipelineSchedule.Sequential:
            raise PipelineNotImplementedError(
                f"batch_serialization_iterations={serial} is only supported with the Sequential "
                f"schedule, not with {chosen!r}"
            )
        return functools.partial(schedules.sequential, batch_serialization=serial)

    @functools.cached_property
    def recomputation(self) -> pipelines.Recomputation:
        """How activations are computed again."""
        mode = self.recomputation_mode
        check.instance(mode, RecomputationMode, "recomputation_mode", optional=True)
        interleaved = mode is RecomputationMode.RecomputeAndBackpropagateInterleaved
        if mode in (None, RecomputationMode.Auto):
            interleaved = self._chosen_schedule is PipelineSchedule.Sequential
        modes = pipelines.Recomputation
        return modes.AND_BACKPROPAGATE if interleaved else modes.THEN_BACKPROPAGATE

    # --- the weight update ------------------------------------------------------------------------

    def optimizer(self, *outputs: Pytree) -> OptimizerFunctionOutput:
        """What the optimizer function gives for the last stage's outputs.

        Raises:
          PipelineTypeError: (a `TypeError`) it gives something else.
        """
        if self.optimizer_function is None:
            raise PipelineError("an inference pipeline has no optimizer")
        what, wanted = "what optimizer_function returns", "an OptimizerFunctionOutput(opt, loss)"
        output = check.instance(
            self.optimizer_function(*outputs), OptimizerFunctionOutput, what, wanted
        )
        if self.summation is None:
            return output
        output = copy.copy(output)
        output.opt = SummingOptimizer(output.opt, self.summation)
        return output

    @functools.cached_property
    def reduction(self) -> GradientAccumulationReductionMethod:
        """How the gradients of micro-batches become one."""
        return parse_reduction_method(self.reduction_method)

    @functools.cached_property
    def accumulation_dtype(self) -> DtypeOf:
        """From a variable to the dtype of its accumulator."""
        dtype, name = self.gradient_accumulation_dtype, "gradient_accumulation_dtype"
        return dtype_chooser(dtype, name, jnp.inexact, PipelineTypeError)

    @functools.cached_property
    def outfeed_dtype(self) -> DtypeOf:
        """From an output to the dtype of its sum."""
        dtype, name = self.accumulate_outfeed_dtype, "accumulate_outfeed_dtype"
        return dtype_chooser(dtype, name, jnp.number, PipelineTypeError)

    @functools.cached_property
    def state_storage(self) -> ops.Storage:
        """Where the optimizer's state waits between updates."""
        sharded = bool(self.replicated_optimizer_state_sharding)
        return storage_of(self.offload_weight_update_variables, sharded, PipelineError)

    @property
    def accumulator_storage(self) -> ops.Storage:
        """Where accumulated gradients wait between tasks."""
        return ops.Storage(remote=bool(self.offload_gradient_accumulation_buffers), what="sums")


def _functions(computational_stages: Sequence[Any]) -> list[list[StageFunction]]:
    """The functions of each stage."""
    stages = check.sequence(computational_stages, "computational_stages", "functions")
    groups = [list(s) if isinstance(s, (list, tuple)) else [s] for s in stages]
    if len(groups) < 2:
        raise PipelineError(f"a pipeline needs at least 2 computational stages, not {len(groups)}")
    for number, group in enumerate(groups):
        if not group or not all(map(callable, group)):
            wanted = "a function, or a list of functions that run concurrently"
            raise check.other_than(wanted, stages[number], f"computational_stages[{number}]")
    return groups


def _ipus(request: PipelineRequest, sizes: Sequence[int]) -> list[list[int]]:
    """The IPU of each function of each stage; the stages have as many functions as `sizes` says."""
    mapping, serial = request.device_mapping, request.batch_serialization_iterations > 1
    if mapping is None:
        numbers = iter(range(sum(sizes)))
        return [[0 if serial else next(numbers) for _ in range(size)] for size in sizes]
    if not isinstance(mapping, (list, tuple)):
        raise PipelineTypeError(
            f"device_mapping must be a list or tuple with an IPU for each stage, not {mapping!r}"
        )
    if len(mapping) != len(sizes):
        raise PipelineError(
            f"device_mapping has {len(mapping)} entries for {len(sizes)} computational stages; "
            "it needs one for each"
        )
    ipus: list[list[int]] = []
    for number, (entry, size) in enumerate(zip(mapping, sizes, strict=True)):
        several = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        concurrent = isinstance(request.computational_stages[number], (list, tuple))
        if concurrent != isinstance(entry, (list, tuple)) or len(several) != size:
            raise PipelineError(
                f"device_mapping[{number}]={entry!r} does not fit computational_stages[{number}], "
                f"which {'is a list of ' + str(size) if concurrent else 'is one'} "
                f"function{'s' * (size > 1)}"
            )
        ipus.append([_ipu(ipu, number) for ipu in several])
        if len(set(several)) < size:
            raise PipelineError(
                f"device_mapping[{number}]={entry!r}: concurrent functions need an IPU each"
            )
    if serial and len({ipu for several in ipus for ipu in several}) > 1:
        raise PipelineNotImplementedError(
            "batch serialization needs all stages on a single IPU, and device_mapping is "
            f"{mapping!r}; leave it out, or give all stages the same IPU"
        )
    return ipus


def _ipu(entry: Any, number: int) -> int:
    what = f"device_mapping[{number}]"
    ipu = check.integer(entry, what)
    if ipu < SPANS_ALL:
        wanted = f"the number of an IPU, or {SPANS_ALL} for a stage that spans all of them"
        raise check.other_than(wanted, entry, what)
    return ipu


def _stage_options(options: object, name: str, stages: int) -> tuple[pipelines.Options, ...]:
    if options is None:
        return ((),) * stages
    entries = check.sequence(options, name)
    if len(entries) != stages:
        raise PipelineError(f"{name} has {len(entries)} entries for {stages} computational stages")
    return tuple(_one_option(entry, f"{name}[{i}]") for i, entry in enumerate(entries))


def _one_option(option: object, name: str) -> pipelines.Options:
    check.instance(option, PipelineStageOptions, name, optional=True)
    return option.as_marks if isinstance(option, PipelineStageOptions) else ()


def _check_outfeed(request: PipelineRequest) -> None:
    loss, mask, queue = request.outfeed_loss, request.outfeed_mask, request.outfeed_queue
    for name, value in (("outfeed_loss", loss), ("outfeed_mask", mask)):
        if value and not request.training:
            raise PipelineError(f"{name} needs an optimizer_function, which defines the loss")
    if loss and mask:
        raise PipelineError("only one of outfeed_loss and outfeed_mask may be set")
    if loss and queue is None:
        raise PipelineError("outfeed_loss needs an outfeed_queue to send the losses to")
    if request.accumulate_outfeed:
        if queue is None:
            raise PipelineError("accumulate_outfeed needs an outfeed_queue")
        if queue.outfeed_mode is not IPUOutfeedMode.ALL:
            raise PipelineError(
                "accumulate_outfeed needs an outfeed_queue of mode IPUOutfeedMode.ALL: what is "
                "accumulated is sent once for each weight update"
            )


def _check_implemented(request: PipelineRequest) -> None:
    if request.continuous_weight_updates:
        raise PipelineNotImplementedError(
            "continuous_weight_updates is not implemented, nor was it in the original: gradients "
            "are accumulated over all micro-batches"
        )
    serial, reduction = request.batch_serialization_iterations, request.reduction
    if serial > 1 and reduction is not GradientAccumulationReductionMethod.SUM:
        raise PipelineError(
            f"batch_serialization_iterations={serial} with reduction_method {reduction.name}: "
            "only SUM is defined for serialized batches"
        )
