"""Pipeline stages of a Keras model's layers as its users read and set them."""

from __future__ import annotations

from typing import Any

from ipujax.keras import stage_config
from ipujax.keras.staged import forget_trace, traced_stages
from ipujax.keras.stages import (
    Call,
    Entry,
    Stages,
    assign,
    calls_of,
    check_stages,
    filled,
    is_graph,
    is_sequential,
    leaves,
    stages_of,
)
from ipujax.pipelines.values import check


@check.guard
class ModelLayerPipelineStageAssignment:
    """The pipeline stage of one call of a layer.

    Attributes:
      layer: the layer; in a functional model also an operation of `keras.ops`.
      node_index: which of the layer's calls.
      pipeline_stage: may be set; None for none.
    """

    is_nested_model = False

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None):
        self.layer, self.node_index = layer, node_index
        self.pipeline_stage = pipeline_stage

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose outputs this call takes; none for a subclassed model's."""
        return _inbound(self.layer, self.node_index)

    def __str__(self) -> str:
        call = f"Layer: {self.layer.name} (node index {self.node_index})"
        return f"{call} is assigned to pipeline stage: {self.pipeline_stage}"

    def __repr__(self) -> str:
        return f"<{self}>"


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The pipeline stage of one call of a layer in a functional model."""


@check.guard
class FunctionalNestedModelPipelineStageAssignment:
    """The pipeline stages of one call of a Sequential or functional model in a functional one.

    Attributes:
      nested_model: the model that is called.
      node_index: which of its calls.
      pipeline_stage_assignments: its assignment in this call, as the model's own
        `get_pipeline_stage_assignment` gives it; what was set there is the default here.
    """

    is_nested_model = True

    def __init__(self, nested_model: Any, node_index: int, pipeline_stage_assignments: list[Any]):
        self.nested_model, self.node_index = nested_model, node_index
        self.pipeline_stage_assignments = pipeline_stage_assignments

    @property
    def layer(self) -> Any:
        """The model that is called."""
        return self.nested_model

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose outputs this call takes."""
        return _inbound(self.nested_model, self.node_index)

    def __str__(self) -> str:
        inside = "".join(f"\n  {entry}" for entry in self.pipeline_stage_assignments)
        call = f"Model: {self.nested_model.name} (node index {self.node_index})"
        return f"{call} has the following pipeline stage assignments:{inside}"


def _inbound(layer: Any, node_index: int) -> list[Any]:
    nodes = layer._inbound_nodes[node_index : node_index + 1]
    return [parent.operation for node in nodes for parent in node.parent_nodes]


def get_pipeline_stage_assignment(model: Any) -> list[Any]:
    """The pipeline stages of a model's layers, in the order of execution, inputs left out.

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
        return _shown(model, stages_of(model))
    traced = traced_stages(model)
    if traced is None:
        raise check.refuse(
            f"the pipeline stages of model {model.name!r} are not known yet: its `call` gives them",
            "run it first, such as by fit or predict in the scope of an IPUStrategy",
        )
    return [ModelLayerPipelineStageAssignment(x.layer, x.node_index, x.stage) for x in traced]


def _shown(model: Any, stages: Stages) -> list[Any]:
    show = _of_sequential if is_sequential(model) else _of_functional
    return [show(call, entry) for call, entry in zip(calls_of(model), stages, strict=True)]


def _of_sequential(call: Call, entry: Entry) -> Any:
    if not isinstance(entry, tuple):
        return entry
    return None if {*leaves(entry)} == {None} else _shown(call.layer, entry)


def _of_functional(call: Call, entry: Entry) -> Any:
    if isinstance(entry, int) and is_graph(call.layer):
        entry = filled(call.layer, entry)
    if not isinstance(entry, tuple):
        return FunctionalLayerPipelineStageAssignment(call.layer, call.node_index, entry)
    inside = _shown(call.layer, entry)
    return FunctionalNestedModelPipelineStageAssignment(call.layer, call.node_index, inside)


def set_pipeline_stage_assignment(model: Any, pipeline_stage_assignment: list[Any]) -> None:
    """Sets the pipeline stages of all layers of a Sequential or functional model.

    Args:
      model: the model.
      pipeline_stage_assignment: what `get_pipeline_stage_assignment` gives, with a stage for every
        call of a layer. A nested model may also be put into one stage as a whole: by an integer in
        a Sequential model's list.

    Raises:
      PipelineError: (a `ValueError`) no such list, or stages in which the model cannot run; the
        model keeps those that it had. Or a subclassed model, whose `call` gives them.
      PipelineTypeError: (a `TypeError`) a stage that is no integer.
    """
    if not is_graph(model):
        raise check.refuse(
            f"the pipeline stages of model {model.name!r} cannot be set: only its `call` knows "
            "which layers it calls",
            "write `with ipu.keras.PipelineStage(0):` and so on around the calls in `call`",
        )
    stages = _read(model, pipeline_stage_assignment)
    check_stages(model, stages)
    stage_config.extend()
    assign(model, stages)


def reset_pipeline_stage_assignment(model: Any) -> None:
    """Takes away the stages that were set; those of `PipelineStage` scopes are in force again.

    Of a subclassed model it forgets the ones of its last trace.
    """
    if is_graph(model):
        assign(model, None)
    else:
        forget_trace(model)


def _read(model: Any, assignment: Any) -> Stages:
    """The stages that an assignment says."""
    if not isinstance(assignment, list):
        kind = type(assignment).__name__
        raise check.refuse(
            f"the pipeline_stage_assignment of model {model.name!r} needs to be a list, not {kind}",
            "give what get_pipeline_stage_assignment() gives, with the stages filled in",
        )
    calls, entries = calls_of(model), list[Any](assignment)
    if len(calls) != len(entries):
        raise check.refuse(
            f"the length of the provided pipeline_stage_assignment ({len(entries)}) does not match "
            f"the number of layers of model {model.name!r} ({len(calls)})",
            "assign each call of a layer to a stage; inputs have no entry",
        )
    read = _read_sequential if is_sequential(model) else _read_functional
    return tuple(read(call, entry) for call, entry in zip(calls, entries, strict=True))


def _read_stage(call: Call, stage: Any) -> int | None:
    if stage is None:
        return None
    return check.integer(stage, f"the pipeline stage of {call.name}", 0)


def _read_sequential(call: Call, entry: Any) -> Entry:
    if is_graph(call.layer) and isinstance(entry, list):
        return _read(call.layer, entry)
    return _read_stage(call, entry)


def _read_functional(call: Call, entry: Any) -> Entry:
    nested = isinstance(entry, FunctionalNestedModelPipelineStageAssignment)
    if is_graph(call.layer) != nested or not (
        nested or isinstance(entry, FunctionalLayerPipelineStageAssignment)
    ):
        kind = "NestedModel" if is_graph(call.layer) else "Layer"
        raise check.refuse(
            f"the pipeline stage assignment of {call.name} must be an instance of "
            f"Functional{kind}PipelineStageAssignment, not {type(entry).__name__}",
            "change the entries of get_pipeline_stage_assignment()",
        )
    if entry.layer is not call.layer or entry.node_index != call.node_index:
        raise check.refuse(
            "the order of pipeline_stage_assignment is not that of the model's execution: where "
            f"{call.name} runs, it has layer {entry.layer.name!r} (node index {entry.node_index})",
            "keep the order of get_pipeline_stage_assignment()",
        )
    if isinstance(entry, FunctionalNestedModelPipelineStageAssignment):
        return _read(call.layer, entry.pipeline_stage_assignments)
    return _read_stage(call, entry.pipeline_stage)
