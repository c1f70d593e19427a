"""Traces of models in which every call of a layer carries the mark of its stage."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import importlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from ipujax.keras import pipeline_stage
from ipujax.keras.pipeline_stage import current_stage, running, stage_of
from ipujax.keras.stages import (
    Entry,
    Stages,
    calls_of,
    check_numbers,
    check_stages,
    graph_of,
    is_graph,
    leaves,
    model_classes,
    stages_of,
    unassigned,
)
from ipujax.pipelines.values import check

_TRACED = "_ipu_traced_pipeline_stages"

_lock = threading.Lock()


@dc.dataclass(frozen=True)
class LayerCall:
    """A call of a layer, not of a model, that a model made while it was traced.

    Attributes:
      layer: what was called.
      node_index: how many calls of it the model had made before.
      stage: its pipeline stage, None for none.
    """

    layer: Any
    node_index: int
    stage: int | None


@dc.dataclass(frozen=True)
class Traced:
    """What a trace of a model shows, as it goes.

    Attributes:
      calls: of layers.
      stages: all that something ran in, be it a layer or an operation.
    """

    calls: list[LayerCall]
    stages: set[int]


@dc.dataclass
class _Place:
    """Where a trace is.

    Attributes:
      calls: of layers, so far.
      model: the model whose graph runs next, None where none with stages of its own does.
      stages: of that model.
      of_model: whether a model, and not a layer, makes the calls.
    """

    calls: list[LayerCall]
    model: Any = None
    stages: Stages = ()
    of_model: bool = True


class _Current(threading.local):
    place: _Place | None = None


_current = _Current()


@contextlib.contextmanager
def staged(model: Any) -> Generator[Traced]:
    """Has the layers of a model that is traced once in the block run in their stages.

    Each call of a layer is traced in the mark of its stage: that of the model's assignment, or of
    the `PipelineStage` scope in which it, or its layer, was built. A subclassed model's stages are
    known after the block, in which it gives them by scopes in its `call`.

    Args:
      model: any model of Keras's; one without stages is traced as ever.

    Yields:
      What the trace has shown; complete after the block.

    Raises:
      PipelineError: (a `ValueError`) stages in which the model cannot run: before the trace, or
        after it for those that a subclassed model gives.
    """
    extend()
    calls: list[LayerCall] = []
    place = _Place(calls)
    if is_graph(model):
        place = _Place(calls, model, stages_of(model))
        if is_pipelined(model):
            check_stages(model, place.stages)
    with pipeline_stage.recorded() as entered, _at(place):
        yield Traced(calls, entered)
    if entered:
        for call in calls:
            if call.stage is None:
                name = f"layer {call.layer.name!r} (node index {call.node_index})"
                raise unassigned(model, name)
        check_numbers(model, entered)
    if not is_graph(model):
        object.__setattr__(model, _TRACED, tuple(calls))


def traced_stages(model: Any) -> tuple[LayerCall, ...] | None:
    """The calls of a subclassed model when it was last traced; None before."""
    return vars(model).get(_TRACED)


def forget_trace(model: Any) -> None:
    """Forgets the stages that a subclassed model gave."""
    object.__setattr__(model, _TRACED, None)


def is_pipelined(model: Any) -> bool:
    """Whether a model has stages; those of a subclassed model are known once it was traced."""
    if is_graph(model):
        return any(stage is not None for stage in leaves(stages_of(model)))
    return any(call.stage is not None for call in traced_stages(model) or ())


@contextlib.contextmanager
def _at(place: _Place | None) -> Generator[None]:
    before, _current.place = _current.place, place
    try:
        yield
    finally:
        _current.place = before


def extend() -> None:
    """Extends Keras's layers and functional graphs, once in a process."""
    pipeline_stage.extend()
    with _lock:
        _extend()


@functools.cache
def _extend() -> None:
    layer = importlib.import_module("keras.src.layers.layer").Layer
    graph = importlib.import_module("keras.src.ops.function").Function
    layer.__call__ = _calling(layer.__call__)
    graph._run_through_graph = _running(graph._run_through_graph)


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's `__call__` that says where the trace is."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = _current.place
        if place is None:
            return original(self, *args, **kwargs)
        with _at(_inside(self, place)):
            return original(self, *args, **kwargs)

    return call


def _inside(layer: Any, place: _Place) -> _Place:
    """Where a trace is in the call of a layer; the call is recorded."""
    is_model = isinstance(layer, model_classes()[0])
    _check_graph(place)
    stage = stage_of(layer) if current_stage() is None else current_stage()
    if place.of_model and not is_model:
        index = sum(call.layer is layer for call in place.calls)
        place.calls.append(LayerCall(layer, index, stage))
    if stage is not None or not is_graph(layer):
        return _Place(place.calls, of_model=is_model)
    if place.model is layer:
        return place
    return _Place(place.calls, layer, stages_of(layer))


def _check_graph(place: _Place) -> None:
    """Refuses a Sequential model with stages that Keras runs without a graph."""
    model = place.model
    if model is None or not model.built or graph_of(model) is not None:
        return
    if any(stage is not None for stage in leaves(place.stages)):
        raise check.refuse(
            f"model {model.name!r} has pipeline stages, but Keras cannot make a graph of it, as "
            "where its input is no single tensor",
            "build it as a functional model, with an Input for each tensor",
        )


def _running(original: Callable[..., Any]) -> Callable[..., Any]:
    """A graph's run whose calls are made in the stages that the place says."""

    @functools.wraps(original)
    def run(
        self: Any,
        inputs: Any,
        operation_fn: Callable[[Any], Callable[..., Any]] = lambda operation: operation,
        call_fn: Any = None,
    ) -> Any:
        place = _current.place
        ours = place and place.model is not None and graph_of(place.model) is self
        if place is None or not ours or call_fn is not None:
            return original(self, inputs, operation_fn=operation_fn, call_fn=call_fn)
        # Keras tells what it calls, not in which node: the calls come in the same order.
        left = iter(zip(calls_of(place.model), place.stages, strict=True))

        def staged_operation(operation: Any) -> Callable[..., Any]:
            entry = next(entry for call, entry in left if call.layer is operation)
            return _within(entry, operation, operation_fn(operation), place)

        return original(self, inputs, operation_fn=staged_operation)

    return run


def _within(
    entry: Entry, layer: Any, call: Callable[..., Any], place: _Place
) -> Callable[..., Any]:
    """A call that runs in its stage; a nested model's runs in the stages that it has here."""
    if entry is None:
        return call

    def within(*args: Any, **kwargs: Any) -> Any:
        with running(entry) if isinstance(entry, int) else _at(_Place(place.calls, layer, entry)):
            return call(*args, **kwargs)

    return within
