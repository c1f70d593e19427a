"""`PipelineStage`: the scope in which the calls of layers run in one pipeline stage.

A stage is traced in a named scope that carries the stage's mark. Keras is extended
in three points: a layer that is built in a scope keeps the stage, and so does a node of a
functional graph, with its copies; a layer that was built in a scope runs in its stage.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Generator
from typing import Any

import jax

from ipujax.doors.keras import import_keras
from ipujax.ground import Checks, PyTree, ScopeError
from ipujax.pipelines import stage_scope_name

_check = Checks(ScopeError, ScopeError)

# The attribute of a layer or node with its stage; set without Keras's tracking of attributes.
_STAGE = "_ipu_pipeline_stage"

_lock = threading.Lock()


class _Current(threading.local):
    """The pipeline stage in which this thread runs.

    Attributes:
      stage: the pipeline stage, None outside all.
      scope: whether a user's scope set it, and not a layer's own stage or an assignment.
      entered: the stages that were entered, while `collect_entered_stages` asks for them.
    """

    stage: int | None = None
    scope = False
    entered: set[int] | None = None


_current = _Current()


@_check.guard
class PipelineStage:
    """A scope whose layers run in one stage of a pipeline.

    Each call of a layer in the scope is assigned to the stage: while a functional model is built,
    and in `call` of a subclassed one, where everything else that is computed in the
    scope belongs to the stage too. A layer that is built in the scope runs in the stage where its
    call is in no scope. A call of a whole model in the scope puts all of it into the stage,
    whatever scopes are inside it.

    Args:
      stage: the stage's number, from 0.

    Raises:
      ScopeError: (a `ValueError`) the stage is negative or no integer; or, when entered, inside
        another such scope, or in the call of a layer that has a stage.
      MissingExtraError: (an `ImportError`) Keras is not installed.
    """

    was_entered = False  # in this process

    def __init__(self, stage: int):
        self._stage = _check.require_integer(stage, "the stage of PipelineStage", 0)
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> PipelineStage:
        if _current.stage is not None:
            raise _check.value_error(
                f"PipelineStage({self._stage}) inside pipeline stage {_current.stage}: pipeline "
                "stages must not be nested",
                "leave the outer scope first; a layer's call belongs to one stage",
            )
        extend_layers()
        PipelineStage.was_entered = True
        self._entered.enter_context(run_in_stage(self._stage, scope=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()


def stage_of_layer_or_node(layer_or_node: object) -> int | None:
    """Returns the stage in which a layer was built, or a node of a graph was made."""
    return vars(layer_or_node).get(_STAGE)


def current_stage() -> int | None:
    """Returns the pipeline stage in which this thread runs."""
    return _current.stage


@contextlib.contextmanager
def run_in_stage(stage: int, *, scope: bool = False) -> Generator[None]:
    """Runs, and traces, the block in a stage."""
    outer_state = _current.stage, _current.scope
    if _current.entered is not None:
        _current.entered.add(stage)
    _current.stage, _current.scope = stage, scope
    try:
        with jax.named_scope(stage_scope_name(stage)):
            yield
    finally:
        _current.stage, _current.scope = outer_state


@contextlib.contextmanager
def collect_entered_stages() -> Generator[set[int]]:
    """Collects the stages that are entered in the block."""
    outer_entered, entered = _current.entered, set[int]()
    _current.entered = entered
    try:
        yield entered
    finally:
        _current.entered = outer_entered


def extend_layers() -> None:
    """Extends Keras's layers and nodes to keep their stages, once in a process."""
    with _lock:
        _extend_layers_once()


@functools.cache
def _extend_layers_once() -> None:
    import_keras()
    layer_class = importlib.import_module("keras.src.layers.layer").Layer
    node_class = importlib.import_module("keras.src.ops.node").Node
    model_module = importlib.import_module("keras.src.models.model")
    layer_class.__new__ = staticmethod(_wrap_layer_new(layer_class.__new__, model_module.Model))
    layer_class.__call__ = _wrap_layer_call(layer_class.__call__)
    node_class.__init__ = _wrap_node_init(node_class.__init__)
    functional_module: Any = importlib.import_module("keras.src.models.functional")
    functional_module.clone_graph_nodes = _wrap_graph_cloning(functional_module.clone_graph_nodes)


def _wrap_layer_new(original: Callable[..., object], model: type) -> Callable[..., object]:
    @functools.wraps(original)
    def create_layer(cls: type, *args: object, **kwargs: object) -> object:
        layer = original(cls, *args, **kwargs)
        # A model that is built in a scope keeps no stage: the layers inside it do.
        if _current.scope and not issubclass(cls, model):
            object.__setattr__(layer, _STAGE, _current.stage)
        return layer

    return create_layer


def _wrap_layer_call(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def call_in_own_stage(self: object, *args: object, **kwargs: object) -> object:
        stage = stage_of_layer_or_node(self)
        if stage is None or _current.stage is not None:
            return original(self, *args, **kwargs)
        with run_in_stage(stage):
            return original(self, *args, **kwargs)

    return call_in_own_stage


def _wrap_node_init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init_node_in_stage(self: object, *args: object, **kwargs: object) -> None:
        if _current.stage is not None:
            object.__setattr__(self, _STAGE, _current.stage)
        original(self, *args, **kwargs)

    return init_node_in_stage


def _wrap_graph_cloning(original: Callable[..., object]) -> Callable[..., object]:
    """Wraps Keras's copying of a graph's nodes so that copies keep the stages."""

    @functools.wraps(original)
    def clone_with_stages(inputs: PyTree, outputs: PyTree) -> object:
        functional_module = importlib.import_module("keras.src.models.functional")
        nodes = functional_module.find_nodes_by_inputs_and_outputs(inputs, outputs)
        next_copy_index = {node.operation: len(node.operation._inbound_nodes) for node in nodes}
        cloned = original(inputs, outputs)
        for node in nodes:
            operation, copy_index = node.operation, next_copy_index[node.operation]
            copies = operation._inbound_nodes[copy_index:]  # none if the node becomes an input
            if copies and (stage := stage_of_layer_or_node(node)) is not None:
                object.__setattr__(copies[0], _STAGE, stage)
            next_copy_index[operation] = copy_index + 1
        return cloned

    return clone_with_stages
