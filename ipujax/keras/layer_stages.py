"""The pipeline stage assignment of a Keras model, as its users read and set it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipujax.keras import stage_config
from ipujax.keras.model_stages import (
    Entry,
    ModelCall,
    Stages,
    assign_all_calls_to_stage,
    assign_stages,
    calls_of_model,
    check_stage_assignment,
    is_graph,
    is_sequential,
    iterate_stage_numbers,
    stages_of_model,
)
from ipujax.keras.stage_tracing import find_traced_calls, forget_trace
from ipujax.pipelines import check

if TYPE_CHECKING:
    import keras


@check.guard
class ModelLayerPipelineStageAssignment:
    """The pipeline stage of one call of a layer.

    Attributes:
      layer: the layer; in a functional model also an operation of `keras.ops`.
      node_index: the index of the call among the layer's calls.
      pipeline_stage: the stage, which may be set; None for no stage.
    """

    is_nested_model = False

    def __init__(self, layer: keras.Layer, node_index: int, pipeline_stage: int | None = None):
        self.layer, self.node_index = layer, node_index
        self.pipeline_stage = pipeline_stage

    @property
    def inbound_layers(self) -> list[keras.Layer]:
        """The layers whose outputs this call takes; none for a subclassed model's."""
        return _find_inbound_layers(self.layer, self.node_index)

    def __str__(self) -> str:
        call_text = f"Layer: {self.layer.name} (node index {self.node_index})"
        return f"{call_text} is assigned to pipeline stage: {self.pipeline_stage}"

    def __repr__(self) -> str:
        return f"<{self}>"


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The pipeline stage of one call of a layer in a functional model."""


@check.guard
class FunctionalNestedModelPipelineStageAssignment:
    """The pipeline stages of one call of a Sequential or functional model in a functional one.

    Attributes:
      nested_model: the model that is called.
      node_index: the index of the call among the model's calls.
      pipeline_stage_assignments: the model's assignment in this call, as its own
        `get_pipeline_stage_assignment` returns it; stages that were set there are the default here.
    """

    is_nested_model = True

    def __init__(
        self, nested_model: keras.Model, node_index: int, pipeline_stage_assignments: list[Any]
    ):
        self.nested_model, self.node_index = nested_model, node_index
        self.pipeline_stage_assignments = pipeline_stage_assignments

    @property
    def layer(self) -> keras.Model:
        """The model that is called."""
        return self.nested_model

    @property
    def inbound_layers(self) -> list[keras.Layer]:
        """The layers whose outputs this call takes."""
        return _find_inbound_layers(self.nested_model, self.node_index)

    def __str__(self) -> str:
        entry_lines = "".join(f"\n  {entry}" for entry in self.pipeline_stage_assignments)
        call_text = f"Model: {self.nested_model.name} (node index {self.node_index})"
        return f"{call_text} has the following pipeline stage assignments:{entry_lines}"


def _find_inbound_layers(layer: keras.Layer, node_index: int) -> list[keras.Layer]:
    nodes = layer._inbound_nodes[node_index : node_index + 1]
    return [parent.operation for node in nodes for parent in node.parent_nodes]


def get_pipeline_stage_assignment(model: keras.Model) -> list[Any]:
    """Returns the pipeline stages of a model's layers in execution order, without its inputs.

    Returns:
      A new list. Of a Sequential model integers, one for each layer, None where it has no stage; a
      nested Sequential or functional model over several stages has its own list. Of a functional
      model a `FunctionalLayerPipelineStageAssignment` for each call of a layer and a
      `FunctionalNestedModelPipelineStageAssignment` for each of a nested model; of a subclassed
      model `ModelLayerPipelineStageAssignment`s.

    Raises:
      PipelineError: (a `ValueError`) a subclassed model that has not been traced yet.
    """
    if is_graph(model):
        return _build_assignment(model, stages_of_model(model))
    layer_calls = find_traced_calls(model)
    if layer_calls is None:
        raise check.value_error(
            f"the pipeline stages of model {model.name!r} are not known yet: its `call` gives them",
            "run it first, such as by fit or predict in the scope of an IPUStrategy",
        )
    return [
        ModelLayerPipelineStageAssignment(layer_call.layer, layer_call.node_index, layer_call.stage)
        for layer_call in layer_calls
    ]


def _build_assignment(model: keras.Model, stages: Stages) -> list[object]:
    build_entry = _build_sequential_entry if is_sequential(model) else _build_functional_entry
    return [
        build_entry(call, entry) for call, entry in zip(calls_of_model(model), stages, strict=True)
    ]


def _build_sequential_entry(call: ModelCall, entry: Entry) -> object:
    if not isinstance(entry, tuple):
        return entry
    return (
        None if {*iterate_stage_numbers(entry)} == {None} else _build_assignment(call.layer, entry)
    )


def _build_functional_entry(call: ModelCall, entry: Entry) -> object:
    if isinstance(entry, int) and is_graph(call.layer):
        entry = assign_all_calls_to_stage(call.layer, entry)
    if not isinstance(entry, tuple):
        return FunctionalLayerPipelineStageAssignment(call.layer, call.node_index, entry)
    nested_entries = _build_assignment(call.layer, entry)
    return FunctionalNestedModelPipelineStageAssignment(call.layer, call.node_index, nested_entries)


def set_pipeline_stage_assignment(model: keras.Model, pipeline_stage_assignment: list[Any]) -> None:
    """Sets the pipeline stages of all layers of a Sequential or functional model.

    Args:
      model: the model.
      pipeline_stage_assignment: the list of `get_pipeline_stage_assignment`, with a stage for every
        call of a layer. An integer in a Sequential model's list puts all of a nested model into one
        stage.

    Raises:
      PipelineError: (a `ValueError`) a list of another form, or stages in which the model cannot
        run; the model keeps its old stages. Or a subclassed model, whose `call` sets the stages.
      PipelineTypeError: (a `TypeError`) a stage that is no integer.
    """
    if not is_graph(model):
        raise check.value_error(
            f"the pipeline stages of model {model.name!r} cannot be set: only its `call` knows "
            "which layers it calls",
            "write `with ipu.keras.PipelineStage(0):` and so on around the calls in `call`",
        )
    stages = _parse_assignment(model, pipeline_stage_assignment)
    check_stage_assignment(model, stages)
    stage_config.extend_model_configs()
    assign_stages(model, stages)


def reset_pipeline_stage_assignment(model: keras.Model) -> None:
    """Removes the stages that were set, so that those of `PipelineStage` scopes apply again.

    For a subclassed model, the stages of its last trace are forgotten.
    """
    if is_graph(model):
        assign_stages(model, None)
    else:
        forget_trace(model)


def _parse_assignment(model: keras.Model, assignment: Any) -> Stages:
    """Returns the stages of a model from a list that a user assigns."""
    if not isinstance(assignment, list):
        type_name = type(assignment).__name__
        raise check.value_error(
            f"the pipeline_stage_assignment of model {model.name!r} needs to be a list, not "
            f"{type_name}",
            "give what get_pipeline_stage_assignment() gives, with the stages filled in",
        )
    calls, entries = calls_of_model(model), list(assignment)
    if len(calls) != len(entries):
        raise check.value_error(
            f"the length of the provided pipeline_stage_assignment ({len(entries)}) does not match "
            f"the number of layers of model {model.name!r} ({len(calls)})",
            "assign each call of a layer to a stage; inputs have no entry",
        )
    parse_entry = _parse_sequential_entry if is_sequential(model) else _parse_functional_entry
    return tuple(parse_entry(call, entry) for call, entry in zip(calls, entries, strict=True))


def _parse_stage(call: ModelCall, stage: object) -> int | None:
    if stage is None:
        return None
    return check.require_integer(stage, f"the pipeline stage of {call.call_description}", 0)


def _parse_sequential_entry(call: ModelCall, entry: object) -> Entry:
    if is_graph(call.layer) and isinstance(entry, list):
        return _parse_assignment(call.layer, entry)
    return _parse_stage(call, entry)


def _parse_functional_entry(call: ModelCall, entry: Any) -> Entry:
    is_nested = isinstance(entry, FunctionalNestedModelPipelineStageAssignment)
    if is_graph(call.layer) != is_nested or not (
        is_nested or isinstance(entry, FunctionalLayerPipelineStageAssignment)
    ):
        kind = "NestedModel" if is_graph(call.layer) else "Layer"
        raise check.value_error(
            f"the pipeline stage assignment of {call.call_description} must be an instance of "
            f"Functional{kind}PipelineStageAssignment, not {type(entry).__name__}",
            "change the entries of get_pipeline_stage_assignment()",
        )
    if entry.layer is not call.layer or entry.node_index != call.node_index:
        raise check.value_error(
            "the order of pipeline_stage_assignment is not that of the model's execution: where "
            f"{call.call_description} runs, it has layer {entry.layer.name!r} (node index "
            f"{entry.node_index})",
            "keep the order of get_pipeline_stage_assignment()",
        )
    if isinstance(entry, FunctionalNestedModelPipelineStageAssignment):
        return _parse_assignment(call.layer, entry.pipeline_stage_assignments)
    return _parse_stage(call, entry.pipeline_stage)
