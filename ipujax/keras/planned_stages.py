"""The stages of a Keras model that a plan assigns to its layers."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from ipujax.doors.keras import import_keras, name_variables
from ipujax.ground import PyTree
from ipujax.keras.keras_checks import check
from ipujax.keras.model_stages import (
    Entry,
    ModelCall,
    Stages,
    calls_of_model,
    is_graph,
    iterate_stage_numbers,
    stages_of_model,
    write_stages,
)
from ipujax.keras.program_mode import Arrays, State
from ipujax.keras.stage_tracing import trace_in_stages
from ipujax.pipelines import PlannedUnits, find_registered_name, plan_units
from ipujax.planner import Plan
from ipujax.system import SYSTEM

if TYPE_CHECKING:
    import keras

_PLANNED = "_ipu_planned_pipeline_stages"
_FUNCTIONS = {"train": "train_function", "test": "test_function", "predict": "predict_function"}


@dc.dataclass(frozen=True)
class _PlannedStages:
    """The stages that a plan has assigned to a model.

    Attributes:
      plan: the plan.
      stages: the stages.
      trains: whether it was planned with a backward pass.
      choices: what the plan was chosen from.
    """

    plan: Plan
    stages: Stages
    trains: bool
    choices: Mapping[str, Any]


def plan_stages(
    model: keras.Model, kind: str, device: str, settings: Mapping[str, Any], state: State,
    batch: PyTree,
) -> Plan:  # fmt: skip
    """Returns the plan of a model's stages, after it has assigned them to the layers.

    With a plan of one stage the layers have none: the model is no pipeline.

    A model is planned once for the same IPUs and settings; evaluation and prediction follow the
    plan of its training, if there is one.

    Args:
      model: a Sequential or functional model.
      kind: "train", "test" or "predict".
      device: the logical device; the plan is for all of its IPUs, as one replica.
      settings: `micro_batches` and perhaps `pipeline_schedule`.
      state: the model's arrays.
      batch: the batch of one micro-batch.

    Raises:
      KerasError: (a `ValueError`) layers that are assigned already, or a schedule without a name.
      PlanError: (a `ValueError`) nothing fits in memory, or can be planned.
    """
    known: _PlannedStages | None = vars(model).get(_PLANNED)
    choices = _read_choices(device, settings)
    if known is not None and known.stages != stages_of_model(model):
        known = None
    if known is not None and known.choices == choices and known.trains >= (kind == "train"):
        return known.plan
    if known is not None:
        write_stages(model, None)
    elif {*iterate_stage_numbers(stages_of_model(model))} != {None}:
        raise check.value_error(
            f"the layers of model {model.name!r} are assigned to stages, and its options say "
            'stages="plan"',
            "call reset_pipeline_stage_assignment() and build it outside PipelineStage scopes, or "
            "leave the plan out of set_pipelining_options",
        )
    units = _plan_layers(model, kind, choices, state, batch)
    if len(units.plan.stages) > 1:
        write_stages(model, _replace_numbers(_number_calls(model, itertools.count()), units))
    planned = _PlannedStages(units.plan, stages_of_model(model), kind == "train", choices)
    object.__setattr__(model, _PLANNED, planned)
    for other, name in _FUNCTIONS.items():
        if other != kind:
            setattr(model, name, None)
    return units.plan


def remove_planned_stages(model: keras.Model) -> None:
    """Removes the stages that a plan has assigned to a model, if they are still the same."""
    known: _PlannedStages | None = vars(model).get(_PLANNED)
    if known is not None and known.stages == stages_of_model(model):
        write_stages(model, None)
    object.__setattr__(model, _PLANNED, None)


def _read_choices(device: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a plan is chosen from, as `planning.search` takes it."""
    system_device = SYSTEM.device(device)
    choices: dict[str, Any] = {
        "ipus": system_device.num_ipus,
        "micro_batches": settings["micro_batches"],
        "recompute": (system_device.config.allow_recompute,),
    }
    if (schedule := settings.get("pipeline_schedule")) is not None:
        choices["schedules"] = (find_registered_name(schedule, "pipeline_schedule", check),)
    return choices


def _plan_layers(
    model: keras.Model, kind: str, choices: Mapping[str, Any], state: State, batch: PyTree
) -> PlannedUnits:
    """Plans a model whose calls of layers are the parts to cut between."""
    names = name_variables(model.trainable_variables)

    def run_model(trained: Mapping[str, jax.Array], others: Sequence[Arrays], batch: PyTree) -> Any:
        variables = [trained[name] for name in names]
        with trace_in_stages(model):
            if kind != "train":
                return model.predict_step((variables, others[0]), batch)[0]
            non_trainable, optimizer, metrics = others
            data = import_keras().utils.unpack_x_y_sample_weight(batch)
            return model.compute_loss_and_updates(
                variables, non_trainable, metrics, *data, training=True,
                optimizer_variables=optimizer,
            )[0]  # fmt: skip

    calls = [*_list_calls(model)]
    write_stages(model, _number_calls(model, itertools.count()))
    try:
        return plan_units(
            run_model,
            (dict(zip(names, state[0], strict=True)), list(state[1:]), batch),
            [_name_call(call) for call in calls],
            split=(2,),
            differentiates=kind == "train",
            **choices,
        )
    finally:
        write_stages(model, None)


def _list_calls(model: keras.Model) -> Iterator[ModelCall]:
    """Lists the calls that a model and the models in it make, in order."""
    for call in calls_of_model(model):
        if is_graph(call.layer):
            yield from _list_calls(call.layer)
        else:
            yield call


def _name_call(call: ModelCall) -> str:
    return call.layer.name if not call.node_index else call.call_description


def _number_calls(model: keras.Model, numbers: Iterator[int]) -> Stages:
    """Returns stages in which each call of a layer has one of its own."""
    return tuple(
        _number_calls(call.layer, numbers) if is_graph(call.layer) else next(numbers)
        for call in calls_of_model(model)
    )


def _replace_numbers(numbers: Stages, units: PlannedUnits) -> Stages:
    """Returns the stages of calls in place of their numbers."""

    def replace(entry: Entry) -> Entry:
        if isinstance(entry, tuple):
            return _replace_numbers(entry, units)
        return None if entry is None else units.stage_of_unit(entry)

    return tuple(map(replace, numbers))
