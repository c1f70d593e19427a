"""The validated arguments of a pipeline, as frozen data."""

from __future__ import annotations

import copy
import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ipujax.ground import (
    PipelineError,
    PipelineNotImplementedError,
    PipelineTypeError,
)
from ipujax.host import IPUInfeedQueue, IPUOutfeedMode, IPUOutfeedQueue
from ipujax.optimizers import (
    GradientAccumulationReductionMethod,
    Summation,
    SummingOptimizer,
    choose_state_storage,
    make_dtype_chooser,
    parse_reduction_method,
)
from ipujax.optimizers import get_current_summation as current_summation
from ipujax.pipelines import single_argument_checks as values
from ipujax.pipelines.optimizer_functions import (
    OptimizerFunction,
    OptimizerOrFunction,
    call_optimizer_function,
    check_optimizer_function,
)
from ipujax.pipelines.pipeline_arguments import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    find_recomputation_conflict,
)
from ipujax.pipelines.pipeline_stages import (
    SPANS_ALL,
    Aval,
    Part,
    Pytree,
)
from ipujax.pipelines.schedule_names import ChosenSchedule, ScheduleOrName, find_schedule
from ipujax.pipelines.single_argument_checks import StateSharding, check
from lowering import jaxpr, ops, pipelines, schedules

StageFunction = Callable[..., Pytree]
AskedDtype = DTypeLike | Callable[[Aval], DTypeLike] | None
"""None for a variable's own dtype, another one, or a function from a variable to one."""
DtypeOf = Callable[[Aval], np.dtype[np.generic]]

_FLAGS = (
    "offload_weight_update_variables",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
    "continuous_weight_updates",
    "outfeed_loss",
    "accumulate_outfeed",
)
"""The arguments that are True, False or None."""

_SCHEDULES = {
    PipelineSchedule.Grouped: schedules.grouped,
    PipelineSchedule.Interleaved: schedules.interleaved,
    PipelineSchedule.Sequential: schedules.sequential,
}


@dc.dataclass(frozen=True, kw_only=True, eq=False)
class PipelineRequest:
    """The arguments of `pipelining_ops.pipeline` but for its arrays.

    Attributes: as the arguments of `pipelining_ops.pipeline`, and
      origin: the user's line, for messages.
      summation: the sum of the gradients of several workers that the current strategy asks for.
      fewest_stages: the number of stages that a pipeline of this kind needs.
      brings_ipus: whether a system that nobody has configured gets the IPUs that it needs.

    Raises:
      PipelineError: (a `ValueError`) arguments that contradict one another.
      PipelineTypeError: (a `TypeError`) arguments of a wrong type.
      PipelineNotImplementedError: (a `NotImplementedError`) what the original had not either.
    """

    fewest_stages: ClassVar[int] = 2
    brings_ipus: ClassVar[bool] = False

    computational_stages: Sequence[StageFunction | Sequence[StageFunction]]
    gradient_accumulation_count: int | None
    gradient_accumulation_dtype: AskedDtype = None
    repeat_count: int = 1
    batch_serialization_iterations: int = 1
    infeed_queue: IPUInfeedQueue | None = None
    outfeed_queue: IPUOutfeedQueue | None = None
    optimizer_function: OptimizerOrFunction = None
    device_mapping: Sequence[int | Sequence[int]] | None = None
    pipeline_schedule: ScheduleOrName = None
    recomputation_mode: RecomputationMode | None = None
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None
    weight_update_poplar_options: PipelineStageOptions | None = None
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: StateSharding | None = False
    offload_activations: bool | None = None
    offload_gradient_accumulation_buffers: bool | None = None
    replicated_weight_sharding: bool | None = None
    offload_weights: bool | None = None
    continuous_weight_updates: bool | None = False
    outfeed_loss: bool | None = False
    accumulate_outfeed: bool | None = False
    accumulate_outfeed_dtype: AskedDtype = None
    outfeed_mask: Sequence[bool] | None = None
    name: str | None = None
    reduction_method: GradientAccumulationReductionMethod | str = (
        GradientAccumulationReductionMethod.SUM
    )
    origin: str = dc.field(default_factory=jaxpr.current_user_line)
    summation: Summation | None = dc.field(default_factory=current_summation)

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "outfeed_mask": values.check_outfeed_mask(self.outfeed_mask),
            "optimizer_function": check_optimizer_function(self.optimizer_function, check),
            "replicated_optimizer_state_sharding": values.check_state_sharding(
                self.replicated_optimizer_state_sharding
            ),
        }
        for name in _FLAGS:
            checked[name] = check.require_optional_flag(getattr(self, name), name)
        for name in ("batch_serialization_iterations", "repeat_count"):
            checked[name] = check.require_integer(getattr(self, name), name, 1)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check.require_instance(self.infeed_queue, IPUInfeedQueue, "infeed_queue", optional=True)
        check.require_instance(self.outfeed_queue, IPUOutfeedQueue, "outfeed_queue", optional=True)
        check.require_instance(self.name, str, "name", optional=True)
        self._check_by_computing_properties()
        _check_outfeed(self)
        _refuse_unsupported_combinations(self)

    def _check_by_computing_properties(self) -> None:
        """Computes the cached properties, which raise if their arguments do not fit together."""
        _ = self.stages, self.task_options, self.micro_batches, self.schedule, self.recomputation
        _ = self.reduction, self.accumulator_dtype_of, self.output_sum_dtype_of, self.state_storage

    # --- stages -----------------------------------------------------------------------------------

    @property
    def is_training(self) -> bool:
        """True if the pipeline has a backward pass."""
        return self.optimizer_function is not None

    @functools.cached_property
    def stages(self) -> tuple[tuple[Part, ...], ...]:
        """The functions of each stage, with their IPUs."""
        groups = _check_stage_functions(self.computational_stages, self.fewest_stages)
        ipus = _check_device_mapping(self, [len(group) for group in groups])
        pairs = (
            zip(*group_and_ipus, strict=True) for group_and_ipus in zip(groups, ipus, strict=True)
        )
        return tuple(tuple(Part(function, ipu) for function, ipu in pair) for pair in pairs)

    @property
    def ipus(self) -> tuple[tuple[int, ...], ...]:
        """The IPUs of each stage; () for one that spans all."""
        return tuple(
            tuple(part.ipu for part in parts if part.ipu != SPANS_ALL) for parts in self.stages
        )

    @functools.cached_property
    def task_options(self) -> dict[pipelines.TaskRole, tuple[pipelines.Options, ...]]:
        """The Poplar options of each stage's tasks, and of the weight update."""
        by_kind = {
            pipelines.TaskRole.FORWARD: "forward_propagation_stages_poplar_options",
            pipelines.TaskRole.BACKWARD: "backward_propagation_stages_poplar_options",
        }
        count = len(self.stages)
        of_tasks = {k: _check_stage_options(getattr(self, n), n, count) for k, n in by_kind.items()}
        update = _check_stage_option(
            self.weight_update_poplar_options, "weight_update_poplar_options"
        )
        return {**of_tasks, pipelines.TaskRole.UPDATE: (update,)}

    # --- micro-batches ----------------------------------------------------------------------------

    @functools.cached_property
    def micro_batches(self) -> int:
        """The number of micro-batches in one weight update; in inference, in one execution."""
        count = values.check_accumulation_count(self.gradient_accumulation_count)
        return count * self.batch_serialization_iterations

    @functools.cached_property
    def _chosen_schedule(self) -> ChosenSchedule:
        if self.pipeline_schedule is not None:
            return find_schedule(self.pipeline_schedule, "pipeline_schedule", check)
        serial = self.batch_serialization_iterations > 1
        return PipelineSchedule.Sequential if serial else PipelineSchedule.Grouped

    @functools.cached_property
    def schedule(self) -> schedules.Spec:
        """The schedule in the form that `schedules.build` takes."""
        chosen, serial = self._chosen_schedule, self.batch_serialization_iterations
        if serial == 1:
            return _SCHEDULES[chosen] if isinstance(chosen, PipelineSchedule) else chosen
        if chosen is not PipelineSchedule.Sequential:
            raise PipelineNotImplementedError(
                f"batch_serialization_iterations={serial} is only supported with the Sequential "
                f"schedule, not with {chosen!r}",
                where=self.origin,
                fix="pass pipeline_schedule=PipelineSchedule.Sequential, or leave the schedule out",
            )
        return functools.partial(schedules.sequential, batch_serialization=serial)

    @property
    def segments(self) -> int:
        """As in `PipelineSpec`: stage functions are not cut."""
        return 0

    @functools.cached_property
    def recomputation(self) -> pipelines.Recomputation:
        """The way in which activations are recomputed."""
        mode = self.recomputation_mode
        check.require_instance(mode, RecomputationMode, "recomputation_mode", optional=True)
        interleaved = mode is RecomputationMode.RecomputeAndBackpropagateInterleaved
        if mode in (None, RecomputationMode.Auto):
            interleaved = self._chosen_schedule is PipelineSchedule.Sequential
        modes = pipelines.Recomputation
        return modes.AND_BACKPROPAGATE if interleaved else modes.THEN_BACKPROPAGATE

    @property
    def recomputation_conflict(self) -> str:
        """The message for a recomputation mode that the schedule lacks; "" if it has the mode."""
        return find_recomputation_conflict(self.recomputation_mode, self._chosen_schedule)

    # --- the weight update ------------------------------------------------------------------------

    def call_optimizer_function(self, *outputs: Pytree) -> OptimizerFunctionOutput:
        """Calls the optimizer function on the last stage's outputs.

        Raises:
          PipelineError: (a `ValueError`) it takes other arguments than these outputs.
          PipelineTypeError: (a `TypeError`) it gives something else.
        """
        if self.optimizer_function is None:
            raise PipelineError("an inference pipeline has no optimizer")
        function = cast(
            OptimizerFunction, self.optimizer_function
        )  # as `check_optimizer_function` gave it
        output = call_optimizer_function(function, outputs)
        if self.summation is None:
            return output
        output = copy.copy(output)
        output.opt = SummingOptimizer(output.opt, self.summation)
        return output

    @functools.cached_property
    def reduction(self) -> GradientAccumulationReductionMethod:
        """The way in which the gradients of micro-batches are combined."""
        return parse_reduction_method(self.reduction_method)

    @functools.cached_property
    def accumulator_dtype_of(self) -> DtypeOf:
        """The function from a variable to the dtype of its accumulator."""
        dtype, name = self.gradient_accumulation_dtype, "gradient_accumulation_dtype"
        return make_dtype_chooser(dtype, name, jnp.inexact, PipelineTypeError)

    @functools.cached_property
    def output_sum_dtype_of(self) -> DtypeOf:
        """The function from an output to the dtype of its sum."""
        dtype, name = self.accumulate_outfeed_dtype, "accumulate_outfeed_dtype"
        return make_dtype_chooser(dtype, name, jnp.number, PipelineTypeError)

    @functools.cached_property
    def state_storage(self) -> ops.Storage:
        """The storage of the optimizer's state between updates."""
        sharding, offload = (
            self.replicated_optimizer_state_sharding,
            self.offload_weight_update_variables,
        )
        if sharding != values.ON_TILES:
            return choose_state_storage(offload, bool(sharding), PipelineError)
        if offload:
            raise PipelineError(
                f"replicated_optimizer_state_sharding={values.ON_TILES!r} keeps the optimizer's "
                "state on the tiles, and offload_weight_update_variables=True does not",
                fix="leave one of them out",
            )
        return ops.Storage(sharded=True, what="state")

    @property
    def accumulator_storage(self) -> ops.Storage:
        """The storage of accumulated gradients between tasks."""
        return ops.Storage(remote=bool(self.offload_gradient_accumulation_buffers), what="sums")


def _check_stage_functions(
    computational_stages: Sequence[Any], fewest: int
) -> list[list[StageFunction]]:
    """Returns the functions of each stage."""
    stages = check.require_sequence(computational_stages, "computational_stages", "functions")
    groups = [list(s) if isinstance(s, (list, tuple)) else [s] for s in stages]
    if len(groups) < fewest:
        raise PipelineError(
            f"a pipeline needs at least {fewest} computational stages, not {len(groups)}",
            fix="give a list with a function for each stage",
        )
    for number, group in enumerate(groups):
        if not group or not all(map(callable, group)):
            expected = "a function, or a list of functions that run concurrently"
            raise check.wrong_type_error(
                expected, stages[number], f"computational_stages[{number}]"
            )
    return groups


def _check_device_mapping(request: PipelineRequest, sizes: Sequence[int]) -> list[list[int]]:
    """Returns the IPU of each function of each stage; `sizes` are their numbers of functions."""
    mapping, serial = request.device_mapping, request.batch_serialization_iterations > 1
    if mapping is None:
        numbers = iter(range(sum(sizes)))
        return [[0 if serial else next(numbers) for _ in range(size)] for size in sizes]
    if not isinstance(mapping, (list, tuple)):
        raise PipelineTypeError(
            f"device_mapping must be a list or tuple with an IPU for each stage, not {mapping!r}",
            where=request.origin,
            fix=f"give {len(sizes)} IPUs, such as {[*range(len(sizes))]}",
        )
    if len(mapping) != len(sizes):
        raise PipelineError(
            f"device_mapping has {len(mapping)} entries for {len(sizes)} computational stages",
            where=request.origin,
            fix=f"give the IPU of each stage, such as {[*range(len(sizes))]}",
        )
    ipus: list[list[int]] = []
    for number, (entry, size) in enumerate(zip(mapping, sizes, strict=True)):
        several = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        concurrent = isinstance(request.computational_stages[number], (list, tuple))
        if concurrent != isinstance(entry, (list, tuple)) or len(several) != size:
            raise PipelineError(
                f"device_mapping[{number}]={entry!r} does not fit computational_stages[{number}], "
                f"which {'is a list of ' + str(size) if concurrent else 'is one'} "
                f"function{'s' * (size > 1)}",
                where=request.origin,
                fix="give one IPU for a function, and a list of IPUs for a list of functions",
            )
        ipus.append([_check_ipu_number(ipu, number) for ipu in several])
        if len(set(several)) < size:
            raise PipelineError(
                f"device_mapping[{number}]={entry!r}: concurrent functions need an IPU each",
                where=request.origin,
                fix=f"give {size} different IPUs",
            )
    if serial and len({ipu for several in ipus for ipu in several}) > 1:
        raise PipelineNotImplementedError(
            "batch serialization needs all stages on a single IPU, and device_mapping is "
            f"{mapping!r}",
            where=request.origin,
            fix="leave device_mapping out, or give all stages the same IPU",
        )
    return ipus


def _check_ipu_number(entry: Any, number: int) -> int:
    argument = f"device_mapping[{number}]"
    ipu = check.require_integer(entry, argument)
    if ipu < SPANS_ALL:
        expected = f"the number of an IPU, or {SPANS_ALL} for a stage that spans all of them"
        raise check.wrong_type_error(expected, entry, argument)
    return ipu


def _check_stage_options(options: object, name: str, stages: int) -> tuple[pipelines.Options, ...]:
    if options is None:
        return ((),) * stages
    entries = check.require_sequence(options, name)
    if len(entries) != stages:
        raise PipelineError(
            f"{name} has {len(entries)} entries for {stages} computational stages",
            fix="give one for each stage, or None in the place of all",
        )
    return tuple(_check_stage_option(entry, f"{name}[{i}]") for i, entry in enumerate(entries))


def _check_stage_option(option: object, name: str) -> pipelines.Options:
    check.require_instance(option, PipelineStageOptions, name, optional=True)
    return option.as_task_options if isinstance(option, PipelineStageOptions) else ()


def _check_outfeed(request: PipelineRequest) -> None:
    loss, mask, queue = request.outfeed_loss, request.outfeed_mask, request.outfeed_queue
    for name, value in (("outfeed_loss", loss), ("outfeed_mask", mask)):
        if value and not request.is_training:
            raise PipelineError(f"{name} needs an optimizer_function, which defines the loss")
    if loss and mask:
        raise PipelineError(
            "only one of outfeed_loss and outfeed_mask may be set", fix="leave one of them out"
        )
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


def _refuse_unsupported_combinations(request: PipelineRequest) -> None:
    if request.continuous_weight_updates:
        raise PipelineNotImplementedError(
            "continuous_weight_updates is not implemented, nor was it in the original: gradients "
            "are accumulated over all micro-batches",
            fix="leave continuous_weight_updates out",
        )
    serial, reduction = request.batch_serialization_iterations, request.reduction
    if serial > 1 and reduction is not GradientAccumulationReductionMethod.SUM:
        raise PipelineError(
            f"batch_serialization_iterations={serial} with reduction_method {reduction.name}: "
            "only SUM is defined for serialized batches",
            fix="pass reduction_method=GradientAccumulationReductionMethod.SUM",
        )
