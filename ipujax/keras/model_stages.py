"""The calls of a Keras model, and the pipeline stage of each.

The stages of a Sequential or functional model are a tuple: one entry for each call, in the order
in which Keras makes them, without its inputs. An entry is the stage's number, None for no stage,
or, for a nested model that is spread over stages, the tuple of that model.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union

from ipujax.ground import IPUError
from ipujax.keras.pipeline_stage import stage_of_layer_or_node
from ipujax.pipelines import check

if TYPE_CHECKING:
    import keras

Entry: TypeAlias = Union[int, "Stages", None]
Stages: TypeAlias = tuple[Entry, ...]

_ASSIGNED = "_ipu_pipeline_stage_assignment"


@dc.dataclass(frozen=True)
class ModelCall:
    """A call that a model makes of a layer, a model or an operation.

    Attributes:
      layer: the layer, the model, or the operation on symbolic tensors that is called.
      node: the call in Keras's graph; None in a Sequential model that is not built yet.
    """

    layer: keras.Layer
    node: Any = None

    @property
    def node_index(self) -> int:
        """The index of the call among the layer's calls."""
        return 0 if self.node is None else self.layer._inbound_nodes.index(self.node)

    @property
    def call_description(self) -> str:
        """The description of the call in messages."""
        return f"layer {self.layer.name!r} (node index {self.node_index})"


@dc.dataclass(frozen=True)
class _StageAssignment:
    """The stages of a model, and the layers that they were assigned to."""

    stages: Stages
    layers: tuple[keras.Layer, ...]


@functools.cache
def model_classes() -> tuple[Any, Any, Any]:
    """Returns Keras's `Model`, `Functional` and `Sequential`."""
    models = importlib.import_module("keras.src.models")
    return models.Model, models.Functional, models.Sequential


def is_sequential(model: keras.Layer) -> bool:
    """Returns whether a model is a Sequential one with Keras's own `call`."""
    sequential = model_classes()[2]
    return isinstance(model, sequential) and type(model).call is sequential.call


def is_graph(model: keras.Layer) -> TypeGuard[keras.Model]:
    """Returns whether a model is Sequential or functional: its calls are known in advance."""
    functional = model_classes()[1]
    is_functional = isinstance(model, functional) and type(model).call is functional.call
    return is_functional or is_sequential(model)


def functional_graph_of(model: keras.Model) -> Any:
    """Returns the functional graph of a model; None while a Sequential one is not built."""
    return model._functional if is_sequential(model) else model


def calls_of_model(model: Any) -> list[ModelCall]:
    """Returns the calls of a Sequential or functional model, in order."""
    graph = functional_graph_of(model)
    if graph is None:
        return [ModelCall(layer) for layer in model.layers]
    by_depth = graph._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [ModelCall(node.operation, node) for node in nodes if not node.is_input]


def stages_of_model(model: Any) -> Stages:
    """Returns the pipeline stages of a Sequential or functional model.

    Stages that were assigned count; otherwise those of the scopes in which the model was built.

    Raises:
      PipelineError: (a `ValueError`) layers were added or removed since stages were assigned.
    """
    calls = calls_of_model(model)
    assignment: _StageAssignment | None = vars(model).get(_ASSIGNED)
    if assignment is None:
        # The nodes of a Sequential model are made by Keras, whenever a layer is added.
        return tuple(_default_stage(call, not is_sequential(model)) for call in calls)
    if [id(call.layer) for call in calls] != [id(layer) for layer in assignment.layers]:
        raise check.value_error(
            f"layers were added to model {model.name!r}, or removed, after its pipeline stages "
            "were assigned",
            "call reset_pipeline_stage_assignment(), and assign stages to all of its layers",
        )
    return assignment.stages


def _default_stage(call: ModelCall, by_node: bool) -> Entry:
    stage = stage_of_layer_or_node(call.node) if by_node else stage_of_layer_or_node(call.layer)
    return stages_of_model(call.layer) if stage is None and is_graph(call.layer) else stage


def needs_trace_for_stages(model: keras.Layer, stages: Stages | None = None) -> bool:
    """Returns whether only a trace shows all stages: a model is, or calls, a subclassed one."""
    if not is_graph(model):
        return isinstance(model, model_classes()[0])
    entries = zip(calls_of_model(model), stages or stages_of_model(model), strict=True)
    return any(
        needs_trace_for_stages(call.layer, entry)
        for call, entry in entries
        if not isinstance(entry, int)
    )


def assign_stages(model: keras.Model, stages: Stages | None) -> None:
    """Assigns stages to a model; None removes them. Its programs are discarded."""
    write_stages(model, stages)
    discard_programs(model)


def write_stages(model: keras.Model, stages: Stages | None) -> None:
    """Assigns stages to a model, and keeps its programs; None removes them."""
    layers = tuple(call.layer for call in calls_of_model(model))
    assignment = None if stages is None else _StageAssignment(stages, layers)
    object.__setattr__(model, _ASSIGNED, assignment)


def discard_programs(model: keras.Model) -> None:
    """Discards a model's programs, as Keras's `compile` does."""
    model.train_function = model.test_function = model.predict_function = None


def assign_all_calls_to_stage(model: keras.Model, stage: int) -> Stages:
    """Returns the stages of a Sequential or functional model that is in one stage."""
    layers = [call.layer for call in calls_of_model(model)]
    return tuple(
        assign_all_calls_to_stage(layer, stage) if is_graph(layer) else stage for layer in layers
    )


def iterate_stage_numbers(stages: Entry) -> Iterator[int | None]:
    """Yields every stage number, and every None, that an entry holds."""
    if not isinstance(stages, tuple):
        yield stages
        return
    for entry in stages:
        yield from iterate_stage_numbers(entry)


def check_stage_numbers(model: keras.Model, used: Iterable[int]) -> None:
    """Refuses stages that are not numbered 0, 1, ... without a gap.

    Raises:
      PipelineError: (a `ValueError`) a stage without a layer.
    """
    stage_numbers = {*used}
    highest = max(stage_numbers, default=0)
    if missing := sorted({*range(highest)} - stage_numbers):
        raise check.value_error(
            f"all stages of the pipeline of model {model.name!r} must have at least one layer: the "
            f"highest stage with a layer is {highest}, but stages {missing} have none",
            "number the stages from 0 without gaps",
        )


def make_unassigned_error(model: keras.Model, call_name: str) -> IPUError:
    """Returns the error for a call without a stage in a model where others have one."""
    return check.value_error(
        "all layers of a pipelined model must have an associated pipeline stage, but "
        f"{call_name} of model {model.name!r} has not been assigned to one",
        "call it in a PipelineStage scope, or assign every layer of a Sequential or functional "
        "model with set_pipeline_stage_assignment",
    )


def check_stage_assignment(model: keras.Model, stages: Stages) -> None:
    """Refuses stages in which a Sequential or functional model cannot run.

    Raises:
      PipelineError: (a `ValueError`) a call without a stage, stages without calls, or a call in an
        earlier stage than one whose results it takes.
    """
    _check_all_assigned(model, stages)
    stage_numbers = [stage for stage in iterate_stage_numbers(stages) if stage is not None]
    if len(stage_numbers) == sum(1 for _ in iterate_stage_numbers(stages)):
        check_stage_numbers(model, stage_numbers)
    graph = functional_graph_of(model)
    _find_output_stages(model, stages, [0] * (1 if graph is None else len(graph.inputs)))


def _check_all_assigned(model: keras.Model, stages: Stages) -> None:
    for call, entry in zip(calls_of_model(model), stages, strict=True):
        if isinstance(entry, tuple):
            _check_all_assigned(call.layer, entry)
        # The stages inside a subclassed model are found when it is traced.
        elif entry is None and not isinstance(call.layer, model_classes()[0]):
            raise make_unassigned_error(model, call.call_description)


def _find_output_stages(
    model: keras.Model, stages: Stages, input_stages: Sequence[int]
) -> list[int]:
    """Returns the stages that compute a model's outputs, from those of its inputs."""
    graph = functional_graph_of(model)
    if graph is None:
        latest = list(input_stages)
        for call, entry in zip(calls_of_model(model), stages, strict=True):
            latest = _find_call_output_stages(call, entry, latest, 1)
        return latest
    computed = {id(tensor): stage for tensor, stage in zip(graph.inputs, input_stages, strict=True)}
    for call, entry in zip(calls_of_model(model), stages, strict=True):
        inputs = [computed[id(x)] for x in call.node.input_tensors]
        outputs = _find_call_output_stages(call, entry, inputs, len(call.node.outputs))
        computed |= {id(x): stage for x, stage in zip(call.node.outputs, outputs, strict=True)}
    return [computed[id(x)] for x in graph.outputs]


def _find_call_output_stages(
    call: ModelCall, entry: Entry, argument_stages: Sequence[int], num_outputs: int
) -> list[int]:
    """Returns the stages that compute a call's outputs."""
    latest = max(argument_stages)
    if isinstance(entry, tuple):
        graph = functional_graph_of(call.layer)
        num_inputs = 1 if graph is None else len(graph.inputs)
        input_stages = (
            argument_stages if len(argument_stages) == num_inputs else [latest] * num_inputs
        )
        output_stages = _find_output_stages(call.layer, entry, input_stages)
        return (
            output_stages
            if len(output_stages) == num_outputs
            else [max(output_stages)] * num_outputs
        )
    if entry is not None and entry < latest:
        raise check.value_error(
            f"{call.call_description} in pipeline stage {entry} has a dependency on stage "
            f"{latest}, which runs later: a layer can only use what its own or an earlier stage "
            "computes",
            f"assign it to stage {latest} or a later one, or what it takes to stage {entry}",
        )
    return [latest if entry is None else entry] * num_outputs
