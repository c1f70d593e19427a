"""The options of a Keras model for its pipeline and for gradient accumulation."""

from __future__ import annotations

import dataclasses as dc
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import optax

from ipujax.ground import Keywords, OptimizerError
from ipujax.keras.model_stages import discard_programs, is_graph
from ipujax.keras.planned_stages import remove_planned_stages
from ipujax.optimizers import (
    GradientAccumulationOptimizerV2,
    Storage,
    choose_state_storage,
    parse_reduction_method,
)
from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction
from ipujax.pipelines import PipelineRequest, check
from ipujax.pipelines import pipelining as pipelining_ops

if TYPE_CHECKING:
    import keras

_PIPELINING = "_ipu_pipelining_options"
_ACCUMULATION = "_ipu_gradient_accumulation_options"

# Arguments of a pipeline that have another name here, that the model and its training decide, and
# that would remove outputs which Keras reads.
_RENAMED = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "reduction_method": "gradient_accumulation_reduction_method",
}
_AUTOMATIC = (
    "computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue",
    "optimizer_function", "variables", "optimizer_state", "state",
)  # fmt: skip
_INCOMPATIBLE = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")


@dc.dataclass(frozen=True)
class GradientAccumulationOptions:
    """The options of gradient accumulation without a pipeline.

    Attributes:
      gradient_accumulation_steps_per_replica: batches of one replica per weight update.
      reduction_method: the reduction of the batches' gradients.
      arguments: further arguments of `GradientAccumulationOptimizerV2`, by name.
    """

    gradient_accumulation_steps_per_replica: int = 1
    reduction_method: Reduction = Reduction.MEAN
    arguments: Mapping[str, Any] = dc.field(default_factory=Keywords)

    @property
    def storage(self) -> Storage:
        """The memory that holds the optimizer's variables between two updates."""
        offload = self.arguments.get("offload_weight_update_variables")
        sharding = self.arguments.get("replicated_optimizer_state_sharding", False)
        sharded = bool(offload if sharding is None else sharding)
        return choose_state_storage(offload, sharded, OptimizerError)

    @property
    def dtype_of_accumulators(self) -> Any:
        """The dtype of the accumulators, or a function from a variable to one."""
        return self.arguments.get("dtype")

    @property
    def scope_name(self) -> str | None:
        """A named scope for what an update computes."""
        return self.arguments.get("name")


@dc.dataclass(frozen=True)
class PipeliningOptions:
    """The options of a pipelined Keras model.

    Attributes:
      gradient_accumulation_steps_per_replica: batches of one replica per weight update; None until
        it is set.
      device_mapping: the IPU of each stage; None for stage i on IPU i.
      accumulate_outfeed: without effect: metrics are summed on the device in any case.
      reduction_method: the reduction of the batches' gradients.
      is_planned: whether a plan assigns layers to stages, and stages to IPUs.
      arguments: further arguments of `pipelining_ops.pipeline`, by name.
    """

    gradient_accumulation_steps_per_replica: int | None = None
    device_mapping: tuple[int, ...] | None = None
    accumulate_outfeed: bool | None = None
    reduction_method: Reduction = Reduction.MEAN
    is_planned: bool = False
    arguments: Mapping[str, Any] = dc.field(default_factory=Keywords)


def pipelining_options(model: keras.Model) -> PipeliningOptions:
    """Returns the options that `set_pipelining_options` has set."""
    return vars(model).get(_PIPELINING) or PipeliningOptions()


def gradient_accumulation_options(model: keras.Model) -> GradientAccumulationOptions:
    """Returns the options that `set_gradient_accumulation_options` has set."""
    return vars(model).get(_ACCUMULATION) or GradientAccumulationOptions()


def check_training_options(model: keras.Model, *, is_pipelined: bool) -> None:
    """Refuses to train with options that would not act, or without one that is needed.

    Raises:
      PipelineError: (a `ValueError`) options for a model without a pipeline, or one is missing.
    """
    pipelining = pipelining_options(model)
    if not is_pipelined:
        return
    if gradient_accumulation_options(model) != GradientAccumulationOptions():
        raise check.value_error(
            f"set_gradient_accumulation_options was called for model {model.name!r}, which is "
            "pipelined",
            "set the accumulation of a pipeline by set_pipelining_options("
            "gradient_accumulation_steps_per_replica=...)",
        )
    if pipelining.gradient_accumulation_steps_per_replica is None:
        raise check.value_error(
            f"model {model.name!r} is pipelined, but gradient_accumulation_steps_per_replica has "
            "not been set: nobody knows how many batches make up a weight update",
            "model.set_pipelining_options(gradient_accumulation_steps_per_replica=...)",
        )


def set_gradient_accumulation_options(
    model: keras.Model,
    gradient_accumulation_steps_per_replica: int | None = None,
    gradient_accumulation_reduction_method: object = "mean",
    **gradient_accumulation_optimizer_kwargs: object,
) -> None:
    """Has a model that is no pipeline update its weights once in several batches.

    Meanwhile the optimizer's variables wait in streaming memory, unless
    `offload_weight_update_variables=False`.

    Args:
      model: the model.
      gradient_accumulation_steps_per_replica: batches of one replica per weight update; None keeps
        what was set before, 1 at first.
      gradient_accumulation_reduction_method: the reduction of their gradients: a
        `GradientAccumulationReductionMethod` or its name.
      gradient_accumulation_optimizer_kwargs: further arguments of
        `GradientAccumulationOptimizerV2`: `offload_weight_update_variables`,
        `replicated_optimizer_state_sharding`, `dtype` and `name`; they replace those of earlier
        calls.

    Raises:
      PipelineError: (a `ValueError`) a number below 1, or an argument that Keras sets.
      PipelineTypeError: (a `TypeError`) no integer, or an argument that the optimizer does not
        have.
      OptimizerError: (a `ValueError`) an unknown method, state sharded but not offloaded;
        `OptimizerTypeError` for arguments of a wrong type.
    """
    old_options = gradient_accumulation_options(model)
    accumulation_steps = _check_accumulation_steps(gradient_accumulation_steps_per_replica)
    new_options = GradientAccumulationOptions(
        old_options.gradient_accumulation_steps_per_replica
        if accumulation_steps is None
        else accumulation_steps,
        parse_reduction_method(gradient_accumulation_reduction_method),
        _check_optimizer_arguments(gradient_accumulation_optimizer_kwargs),
    )
    object.__setattr__(model, _ACCUMULATION, new_options)
    discard_programs(model)


def set_pipelining_options(
    model: keras.Model,
    gradient_accumulation_steps_per_replica: int | None = None,
    device_mapping: list[int] | None = None,
    accumulate_outfeed: bool | None = None,
    gradient_accumulation_reduction_method: object = "mean",
    stages: str | None = None,
    **pipelining_kwargs: object,
) -> None:
    """Sets how a model runs once it is pipelined; without stages no option acts.

    Args:
      model: the model.
      gradient_accumulation_steps_per_replica: batches of one replica per weight update. This and
        the next two keep what was set before if they are None.
      device_mapping: the IPU of each stage; stage i is on IPU i where it was never given.
      accumulate_outfeed: accepted for the original's programs; it changes nothing, since metrics
        are summed on the device in any case.
      gradient_accumulation_reduction_method: the reduction of the batches' gradients: a
        `GradientAccumulationReductionMethod` or its name.
      stages: "plan" has the next program plan the stages of a Sequential or functional model by
        `ipu.plan`, for all IPUs of the strategy's device, as one replica: which layers are in each
        stage, where it runs, and by which schedule, where `pipeline_schedule` names none.
        `get_pipeline_stage_assignment` then returns the plan's stages. None leaves the stages that
        layers are assigned to, and removes those of an earlier plan.
      pipelining_kwargs: further arguments of `pipelining_ops.pipeline`, such as
        `pipeline_schedule`, `recomputation_mode` and `offload_activations`; they replace
        those of earlier calls.

    Raises:
      PipelineError: (a `ValueError`) a value that cannot be, or an argument that Keras sets.
      PipelineTypeError: (a `TypeError`) a value of a wrong type, or an argument that
        `pipelining_ops.pipeline` does not have.
      OptimizerError: (a `ValueError`) an unknown method; `OptimizerTypeError` for another type.
    """
    old_options = pipelining_options(model)
    checked_options = {
        "gradient_accumulation_steps_per_replica": _check_accumulation_steps(
            gradient_accumulation_steps_per_replica
        ),
        "device_mapping": _check_stage_mapping(device_mapping),
        "accumulate_outfeed": check.require_optional_flag(accumulate_outfeed, "accumulate_outfeed"),
    }
    method = parse_reduction_method(gradient_accumulation_reduction_method)
    _check_pipeline_arguments(pipelining_kwargs)
    is_planned = stages is not None
    if is_planned:
        check.require_one_of(stages, ("plan",), "stages")
        _check_that_stages_can_be_planned(model, device_mapping)
    new_options = dc.replace(
        old_options,
        **{name: value for name, value in checked_options.items() if value is not None},
        reduction_method=method,
        is_planned=is_planned,
        arguments=dict(pipelining_kwargs),
    )
    remove_planned_stages(model)
    object.__setattr__(model, _PIPELINING, new_options)
    discard_programs(model)


def _check_that_stages_can_be_planned(model: keras.Model, mapping: object) -> None:
    if mapping is not None:
        raise check.value_error(
            'device_mapping and stages="plan" were given together: the plan says on which IPU each '
            "stage is",
            "leave one of them out",
        )
    if not is_graph(model):
        raise check.value_error(
            f"the stages of model {model.name!r} cannot be planned: only its `call` knows which "
            "layers it calls",
            "build it as a Sequential or functional model, or write "
            "`with ipu.keras.PipelineStage(0):` and so on around the calls in `call`",
        )


def _check_accumulation_steps(steps: object) -> int | None:
    name = "gradient_accumulation_steps_per_replica"
    return None if steps is None else check.require_integer(steps, name, 1)


def _check_stage_mapping(mapping: object) -> tuple[int, ...] | None:
    if mapping is None:
        return None
    entries = check.require_sequence(mapping, "device_mapping", "integers")
    return tuple(
        check.require_integer(entry, "an entry of device_mapping", -1) for entry in entries
    )


def _check_optimizer_arguments(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Refuses arguments that a gradient accumulation optimizer lacks, or that Keras sets."""
    optimizer_class = GradientAccumulationOptimizerV2
    replacements = {**_RENAMED, "num_mini_batches": _RENAMED["gradient_accumulation_count"]}
    parameters = inspect.signature(optimizer_class).parameters
    for name in arguments:
        if name in replacements:
            raise check.value_error(
                f"{name} is an argument of {optimizer_class.__name__} that Keras sets",
                f"give {replacements[name]} instead",
            )
        if name == "opt":
            raise check.value_error(
                f"opt is an argument of {optimizer_class.__name__} that Keras sets by itself",
                "give the optimizer to compile",
            )
        if name not in parameters:
            raise check.type_error(
                f"set_gradient_accumulation_options and {optimizer_class.__name__} have no "
                f"argument {name}",
                "see the arguments of ipu.optimizers.GradientAccumulationOptimizerV2",
            )
    optimizer_class(optax.identity(), 1, **arguments)
    return dict(arguments)


def _check_pipeline_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that a pipeline lacks, or that Keras sets."""
    parameters = inspect.signature(pipelining_ops.pipeline).parameters
    for name in arguments:
        message_start = f"{name} is an argument of pipelining_ops.pipeline that"
        if name in _RENAMED:
            raise check.value_error(f"{message_start} Keras sets", f"give {_RENAMED[name]} instead")
        if name in _AUTOMATIC:
            raise check.value_error(f"{message_start} Keras sets by itself", "leave it out")
        if name in _INCOMPATIBLE:
            raise check.value_error(f"{message_start} is not compatible with Keras", "leave it out")
        if name not in parameters:
            raise check.type_error(
                f"set_pipelining_options and pipelining_ops.pipeline have no argument {name}",
                "see the arguments of ipu.pipelining_ops.pipeline",
            )
    stage_arguments = [name for name in arguments if name.endswith("_stages_poplar_options")]
    arguments_for_all = {
        name: value for name, value in arguments.items() if name not in stage_arguments
    }
    # Two stages stand in for those of the model, whose number is not known yet.
    stages = [_placeholder_stage, _placeholder_stage]
    PipelineRequest(computational_stages=stages, gradient_accumulation_count=1, **arguments_for_all)


def _placeholder_stage(x: jax.Array) -> jax.Array:
    return x
