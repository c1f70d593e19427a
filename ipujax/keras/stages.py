"""The calls that a model consists of, and the pipeline stage of each.

The stages of a Sequential or functional model are a tuple: one entry for each call, in the order
in which Keras makes them, its inputs left out. An entry is the stage's number, None where there is
none, or, for a nested model that is spread over stages, the tuple of that model.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, Union

from ipujax.errors import IPUError
from ipujax.keras.pipeline_stage import stage_of
from ipujax.pipelines.values import check

Entry: TypeAlias = Union[int, "Stages", None]
Stages: TypeAlias = tuple[Entry, ...]

_ASSIGNED = "_ipu_pipeline_stage_assignment"


@dc.dataclass(frozen=True)
class Call:
    """A call that a model makes.

    Attributes:
      layer: what is called: a layer, a model, or an operation on symbolic tensors.
      node: the call in Keras's graph; None in a Sequential model that is not built yet.
    """

    layer: Any
    node: Any = None

    @property
    def node_index(self) -> int:
        """Which of the layer's calls it is."""
        return 0 if self.node is None else self.layer._inbound_nodes.index(self.node)

    @property
    def name(self) -> str:
        """The call in the words of messages."""
        return f"layer {self.layer.name!r} (node index {self.node_index})"


@dc.dataclass(frozen=True)
class _Assigned:
    """Stages, and the layers that they were assigned to."""

    stages: Stages
    layers: tuple[Any, ...]


@functools.cache
def model_classes() -> tuple[Any, Any, Any]:
    """Keras's `Model`, `Functional` and `Sequential`."""
    models = importlib.import_module("keras.src.models")
    return models.Model, models.Functional, models.Sequential


def is_sequential(model: Any) -> bool:
    """Whether a model is a Sequential one that runs as Keras runs it."""
    sequential = model_classes()[2]
    return isinstance(model, sequential) and type(model).call is sequential.call


def is_graph(model: Any) -> bool:
    """Whether a model's calls are known before it runs: a Sequential or functional one."""
    functional = model_classes()[1]
    as_built = isinstance(model, functional) and type(model).call is functional.call
    return as_built or is_sequential(model)


def graph_of(model: Any) -> Any:
    """The functional graph that a model runs; None while a Sequential one is not built."""
    return model._functional if is_sequential(model) else model


def calls_of(model: Any) -> list[Call]:
    """The calls of a Sequential or functional model, in order."""
    graph = graph_of(model)
    if graph is None:
        return [Call(layer) for layer in model.layers]
    by_depth = graph._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [Call(node.operation, node) for node in nodes if not node.is_input]


def stages_of(model: Any) -> Stages:
    """The stages of a Sequential or functional model.

    These are the ones that were assigned to it, else those of the scopes in which it was built.

    Raises:
      PipelineError: (a `ValueError`) layers were added or removed since stages were assigned.
    """
    calls = calls_of(model)
    assigned: _Assigned | None = vars(model).get(_ASSIGNED)
    if assigned is None:
        # The nodes of a Sequential model are made by Keras, whenever a layer is added.
        return tuple(_default(call, not is_sequential(model)) for call in calls)
    if [id(call.layer) for call in calls] != [id(layer) for layer in assigned.layers]:
        raise check.refuse(
            f"layers were added to model {model.name!r}, or removed, after its pipeline stages "
            "were assigned",
            "call reset_pipeline_stage_assignment(), and assign stages to all of its layers",
        )
    return assigned.stages


def _default(call: Call, by_node: bool) -> Entry:
    stage = stage_of(call.node) if by_node else stage_of(call.layer)
    return stages_of(call.layer) if stage is None and is_graph(call.layer) else stage


def gives_stages(model: Any, stages: Stages | None = None) -> bool:
    """Whether only a trace tells all stages of a model: it is a subclassed one, or calls one."""
    if not is_graph(model):
        return isinstance(model, model_classes()[0])
    entries = zip(calls_of(model), stages or stages_of(model), strict=True)
    return any(
        gives_stages(call.layer, entry) for call, entry in entries if not isinstance(entry, int)
    )


def assign(model: Any, stages: Stages | None) -> None:
    """Gives a model stages; None takes them away."""
    layers = tuple(call.layer for call in calls_of(model))
    assigned = None if stages is None else _Assigned(stages, layers)
    object.__setattr__(model, _ASSIGNED, assigned)
    recompile(model)


def recompile(model: Any) -> None:
    """Has a model's programs made anew before it runs again, as Keras's `compile` does."""
    model.train_function = model.test_function = model.predict_function = None


def filled(model: Any, stage: int) -> Stages:
    """The stages of a Sequential or functional model that is in one stage as a whole."""
    layers = [call.layer for call in calls_of(model)]
    return tuple(filled(layer, stage) if is_graph(layer) else stage for layer in layers)


def leaves(stages: Entry) -> Iterator[int | None]:
    """Every stage, and every None, that an entry holds."""
    if not isinstance(stages, tuple):
        yield stages
        return
    for entry in stages:
        yield from leaves(entry)


def check_numbers(model: Any, used: Iterable[int]) -> None:
    """Refuses stages that are not 0, 1, ... without a gap.

    Raises:
      PipelineError: (a `ValueError`) there are such.
    """
    known = {*used}
    highest = max(known, default=0)
    if missing := sorted({*range(highest)} - known):
        raise check.refuse(
            f"all stages of the pipeline of model {model.name!r} must have at least one layer: the "
            f"highest stage with a layer is {highest}, but stages {missing} have none",
            "number the stages from 0 without gaps",
        )


def unassigned(model: Any, name: str) -> IPUError:
    """The error for a call that has no stage, in a model where others have one."""
    return check.refuse(
        "all layers of a pipelined model must have an associated pipeline stage, but "
        f"{name} of model {model.name!r} has not been assigned to one",
        "call it in a PipelineStage scope, or assign every layer of a Sequential or functional "
        "model with set_pipeline_stage_assignment",
    )


def check_stages(model: Any, stages: Stages) -> None:
    """Refuses stages in which a Sequential or functional model cannot run.

    Raises:
      PipelineError: (a `ValueError`) a call without a stage, stages without calls, or a call in an
        earlier stage than one whose results it takes.
    """
    _check_assigned(model, stages)
    known = [stage for stage in leaves(stages) if stage is not None]
    if len(known) == sum(1 for _ in leaves(stages)):
        check_numbers(model, known)
    graph = graph_of(model)
    _results(model, stages, [0] * (1 if graph is None else len(graph.inputs)))


def _check_assigned(model: Any, stages: Stages) -> None:
    for call, entry in zip(calls_of(model), stages, strict=True):
        if isinstance(entry, tuple):
            _check_assigned(call.layer, entry)
        # The stages inside a subclassed model are found when it is traced.
        elif entry is None and not isinstance(call.layer, model_classes()[0]):
            raise unassigned(model, call.name)


def _results(model: Any, stages: Stages, arguments: Sequence[int]) -> list[int]:
    """The stages that compute a model's outputs, its inputs coming from these."""
    graph = graph_of(model)
    if graph is None:
        latest = list(arguments)
        for call, entry in zip(calls_of(model), stages, strict=True):
            latest = _after(call, entry, latest, 1)
        return latest
    computed = {id(x): stage for x, stage in zip(graph.inputs, arguments, strict=True)}
    for call, entry in zip(calls_of(model), stages, strict=True):
        inputs = [computed[id(x)] for x in call.node.input_tensors]
        outputs = _after(call, entry, inputs, len(call.node.outputs))
        computed |= {id(x): stage for x, stage in zip(call.node.outputs, outputs, strict=True)}
    return [computed[id(x)] for x in graph.outputs]


def _after(call: Call, entry: Entry, inputs: Sequence[int], outputs: int) -> list[int]:
    """The stages that compute a call's outputs."""
    latest = max(inputs)
    if isinstance(entry, tuple):
        graph = graph_of(call.layer)
        wanted = 1 if graph is None else len(graph.inputs)
        given = inputs if len(inputs) == wanted else [latest] * wanted
        found = _results(call.layer, entry, given)
        return found if len(found) == outputs else [max(found)] * outputs
    if entry is not None and entry < latest:
        raise check.refuse(
            f"{call.name} in pipeline stage {entry} has a dependency on stage {latest}, which runs "
            "later: a layer can only use what its own or an earlier stage computes",
            f"assign it to stage {latest} or a later one, or what it takes to stage {entry}",
        )
    return [latest if entry is None else entry] * outputs
