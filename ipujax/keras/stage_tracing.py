"""Traces of Keras models in which every call of a layer carries the mark of its stage."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import importlib
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ipujax.ground import PyTree
from ipujax.keras import pipeline_stage
from ipujax.keras.model_stages import (
    Entry,
    Stages,
    calls_of_model,
    check_stage_assignment,
    check_stage_numbers,
    functional_graph_of,
    is_graph,
    iterate_stage_numbers,
    make_unassigned_error,
    model_classes,
    stages_of_model,
)
from ipujax.keras.pipeline_stage import current_stage, run_in_stage, stage_of_layer_or_node
from ipujax.pipelines import check

if TYPE_CHECKING:
    import keras

_TRACED = "_ipu_traced_pipeline_stages"

_lock = threading.Lock()


@dc.dataclass(frozen=True)
class LayerCall:
    """A call of a layer that a model made while it was traced.

    Attributes:
      layer: the layer, which is no model.
      node_index: the number of earlier calls of the layer by the model.
      stage: the pipeline stage of the call, None for none.
    """

    layer: keras.Layer
    node_index: int
    stage: int | None


@dc.dataclass(frozen=True)
class StageTrace:
    """The calls and stages that a trace of a model has met so far.

    Attributes:
      calls: the calls of layers.
      stages: the stages in which a layer or an operation ran.
    """

    calls: list[LayerCall]
    stages: set[int]


@dc.dataclass
class _TracePosition:
    """The position of a trace in the calls of a model.

    Attributes:
      calls: the calls of layers so far.
      model: the model with stages whose graph runs next, None for none.
      stages: the stages of that model.
      of_model: whether a model, and not a layer, makes the calls.
    """

    calls: list[LayerCall]
    model: keras.Model | None = None
    stages: Stages = ()
    of_model: bool = True


class _Current(threading.local):
    position: _TracePosition | None = None


_current = _Current()


@contextlib.contextmanager
def trace_in_stages(model: keras.Model) -> Generator[StageTrace]:
    """Traces a model in the block with each call of a layer in its pipeline stage.

    Each call of a layer is traced in the mark of its stage: that of the model's assignment, or of
    the `PipelineStage` scope in which it, or its layer, was built. A subclassed model's stages are
    known after the block, in which it gives them by scopes in its `call`.

    Args:
      model: any model of Keras's; a model without stages is traced without marks.

    Yields:
      The trace's calls and stages; complete after the block.

    Raises:
      PipelineError: (a `ValueError`) stages in which the model cannot run: before the trace, or
        after it for those that a subclassed model gives.
    """
    extend_layer_calls()
    calls: list[LayerCall] = []
    position = _TracePosition(calls)
    if is_graph(model):
        position = _TracePosition(calls, model, stages_of_model(model))
        if has_pipeline_stages(model):
            check_stage_assignment(model, position.stages)
    with pipeline_stage.collect_entered_stages() as entered, _set_position(position):
        yield StageTrace(calls, entered)
    if entered:
        for call in calls:
            if call.stage is None:
                name = f"layer {call.layer.name!r} (node index {call.node_index})"
                raise make_unassigned_error(model, name)
        check_stage_numbers(model, entered)
    if not is_graph(model):
        object.__setattr__(model, _TRACED, tuple(calls))


def find_traced_calls(model: keras.Model) -> tuple[LayerCall, ...] | None:
    """Returns the layer calls of a subclassed model's last trace; None if it was not traced."""
    return vars(model).get(_TRACED)


def forget_trace(model: keras.Model) -> None:
    """Forgets the stages that a subclassed model's last trace gave."""
    object.__setattr__(model, _TRACED, None)


def has_pipeline_stages(model: keras.Model) -> bool:
    """Returns whether a model has stages; a subclassed model shows them in its first trace."""
    if is_graph(model):
        return any(stage is not None for stage in iterate_stage_numbers(stages_of_model(model)))
    return any(call.stage is not None for call in find_traced_calls(model) or ())


@contextlib.contextmanager
def _set_position(position: _TracePosition | None) -> Generator[None]:
    outer_position, _current.position = _current.position, position
    try:
        yield
    finally:
        _current.position = outer_position


def extend_layer_calls() -> None:
    """Extends Keras's layers and functional graphs to run in stages, once in a process."""
    pipeline_stage.extend_layers()
    with _lock:
        _extend_layer_calls_once()


@functools.cache
def _extend_layer_calls_once() -> None:
    layer_class = importlib.import_module("keras.src.layers.layer").Layer
    graph_class = importlib.import_module("keras.src.ops.function").Function
    layer_class.__call__ = _track_layer_calls(layer_class.__call__)
    graph_class._run_through_graph = _run_graph_in_stages(graph_class._run_through_graph)


def _track_layer_calls(original: Callable[..., object]) -> Callable[..., object]:
    """Wraps a layer's `__call__` to update the position of the trace."""

    @functools.wraps(original)
    def call_at_position(self: keras.Layer, *args: object, **kwargs: object) -> object:
        position = _current.position
        if position is None:
            return original(self, *args, **kwargs)
        with _set_position(_enter_layer(self, position)):
            return original(self, *args, **kwargs)

    return call_at_position


def _enter_layer(layer: keras.Layer, position: _TracePosition) -> _TracePosition:
    """Records the call of a layer; returns the position of the trace inside it."""
    is_model = isinstance(layer, model_classes()[0])
    _check_graph(position)
    stage = stage_of_layer_or_node(layer) if current_stage() is None else current_stage()
    if position.of_model and not is_model:
        index = sum(call.layer is layer for call in position.calls)
        position.calls.append(LayerCall(layer, index, stage))
    if stage is not None or not is_graph(layer):
        return _TracePosition(position.calls, of_model=is_model)
    if position.model is layer:
        return position
    return _TracePosition(position.calls, layer, stages_of_model(layer))


def _check_graph(position: _TracePosition) -> None:
    """Refuses a Sequential model with stages that Keras runs without a graph."""
    model = position.model
    if model is None or not model.built or functional_graph_of(model) is not None:
        return
    if any(stage is not None for stage in iterate_stage_numbers(position.stages)):
        raise check.value_error(
            f"model {model.name!r} has pipeline stages, but Keras cannot make a graph of it, as "
            "where its input is no single tensor",
            "build it as a functional model, with an Input for each tensor",
        )


def _run_graph_in_stages(original: Callable[..., object]) -> Callable[..., object]:
    """Wraps a graph's run to make its calls in the stages at the trace's position."""

    @functools.wraps(original)
    def run_graph(
        self: object,
        inputs: PyTree,
        operation_fn: Callable[[Any], Callable[..., Any]] = lambda operation: operation,
        call_fn: Any = None,
    ) -> PyTree:
        position = _current.position
        is_model_graph = (
            position and position.model is not None and functional_graph_of(position.model) is self
        )
        if position is None or not is_model_graph or call_fn is not None:
            return original(self, inputs, operation_fn=operation_fn, call_fn=call_fn)
        # Keras passes the operation, and not its node: the calls come in the same order.
        remaining_calls = iter(zip(calls_of_model(position.model), position.stages, strict=True))

        def wrap_operation(operation: Any) -> Callable[..., object]:
            entry = next(entry for call, entry in remaining_calls if call.layer is operation)
            return _wrap_call_in_stage(entry, operation, operation_fn(operation), position)

        return original(self, inputs, operation_fn=wrap_operation)

    return run_graph


def _wrap_call_in_stage(
    entry: Entry, layer: keras.Layer, call: Callable[..., object], position: _TracePosition
) -> Callable[..., object]:
    """Returns a call that runs in its stage, or in the stages of a nested model."""
    if entry is None:
        return call

    def call_in_entry_stage(*args: object, **kwargs: object) -> object:
        with (
            run_in_stage(entry)
            if isinstance(entry, int)
            else _set_position(_TracePosition(position.calls, layer, entry))
        ):
            return call(*args, **kwargs)

    return call_in_entry_stage
