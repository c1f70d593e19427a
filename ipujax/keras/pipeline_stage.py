"""`PipelineStage`: the scope that says in which stage of a pipeline calls of layers run.

What runs in a stage is traced in a named scope that carries the stage's mark. Keras is extended
in three places: a layer that is built in a scope keeps the stage, and so does a node of a
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

from ipujax.checks.arguments import Checks
from ipujax.errors import ScopeError
from lowering import marks

_check = Checks(ScopeError, ScopeError)

# What a layer or node of Keras's keeps; set past Keras's tracking of attributes.
_STAGE = "_ipu_pipeline_stage"

_lock = threading.Lock()


class _Current(threading.local):
    """Where this thread is.

    Attributes:
      stage: the pipeline stage, None outside all.
      scope: whether a user's scope said so, and not a layer's own stage or an assignment.
      entered: the stages that were entered, while `recorded` asks for them.
    """

    stage: int | None = None
    scope = False
    entered: set[int] | None = None


_current = _Current()


@_check.guard
class PipelineStage:
    """A scope whose layers run in one stage of a pipeline.

    Each call of a layer in the scope is assigned to the stage: while a functional model is built,
    and in `call` of a subclassed one, where everything else that is computed in the scope belongs
    to the stage too. So is a layer that is built in the scope, for those of its calls that are in
    none. A call of a whole model in the scope puts all of it into the stage, whatever is said
    inside it.

    Args:
      stage: its number, from 0.

    Raises:
      ScopeError: (a `ValueError`) the stage is negative or no integer; or, when entered, inside
        another such scope, or in the call of a layer that has a stage.
      MissingExtraError: (an `ImportError`) Keras is not installed.
    """

    was_entered = False  # by anybody, in this process

    def __init__(self, stage: int):
        self._stage = _check.integer(stage, "the stage of PipelineStage", 0)
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> PipelineStage:
        if _current.stage is not None:
            raise _check.refuse(
                f"PipelineStage({self._stage}) inside pipeline stage {_current.stage}: pipeline "
                "stages must not be nested",
                "leave the outer scope first; a layer's call belongs to one stage",
            )
        extend()
        PipelineStage.was_entered = True
        self._entered.enter_context(running(self._stage, scope=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()


def stage_of(what: Any) -> int | None:
    """The stage that a layer was built in, or a node of a graph was made in."""
    return vars(what).get(_STAGE)


def current_stage() -> int | None:
    """The stage that this thread's calls run in."""
    return _current.stage


@contextlib.contextmanager
def running(stage: int, *, scope: bool = False) -> Generator[None]:
    """Runs, and traces, the block in a stage."""
    before = _current.stage, _current.scope
    if _current.entered is not None:
        _current.entered.add(stage)
    _current.stage, _current.scope = stage, scope
    try:
        with jax.named_scope(marks.write(marks.STAGE, str(stage))):
            yield
    finally:
        _current.stage, _current.scope = before


@contextlib.contextmanager
def recorded() -> Generator[set[int]]:
    """Collects the stages that are entered in the block."""
    before, entered = _current.entered, set[int]()
    _current.entered = entered
    try:
        yield entered
    finally:
        _current.entered = before


def extend() -> None:
    """Extends Keras's layers and nodes, once in a process."""
    with _lock:
        _extend()


@functools.cache
def _extend() -> None:
    layer = importlib.import_module("keras.src.layers.layer").Layer
    node = importlib.import_module("keras.src.ops.node").Node
    models = importlib.import_module("keras.src.models.model")
    layer.__new__ = staticmethod(_building(layer.__new__, models.Model))
    layer.__call__ = _calling(layer.__call__)
    node.__init__ = _connecting(node.__init__)
    graphs: Any = importlib.import_module("keras.src.models.functional")
    graphs.clone_graph_nodes = _cloning(graphs.clone_graph_nodes)


def _building(original: Callable[..., Any], model: type) -> Callable[..., Any]:
    @functools.wraps(original)
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        layer = original(cls, *args, **kwargs)
        # Of a model that is built in a scope, the layers inside it keep the stage.
        if _current.scope and not issubclass(cls, model):
            object.__setattr__(layer, _STAGE, _current.stage)
        return layer

    return new


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        stage = stage_of(self)
        if stage is None or _current.stage is not None:
            return original(self, *args, **kwargs)
        with running(stage):
            return original(self, *args, **kwargs)

    return call


def _connecting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if _current.stage is not None:
            object.__setattr__(self, _STAGE, _current.stage)
        original(self, *args, **kwargs)

    return init


def _cloning(original: Callable[..., Any]) -> Callable[..., Any]:
    """Keras's copying of a graph's nodes, for a model of a part of the graph."""

    @functools.wraps(original)
    def clone(inputs: Any, outputs: Any) -> Any:
        graphs = importlib.import_module("keras.src.models.functional")
        nodes = graphs.find_nodes_by_inputs_and_outputs(inputs, outputs)
        made = {node.operation: len(node.operation._inbound_nodes) for node in nodes}
        cloned = original(inputs, outputs)
        for node in nodes:
            operation, place = node.operation, made[node.operation]
            copies = operation._inbound_nodes[place:]  # none of what becomes an input
            if copies and (stage := stage_of(node)) is not None:
                object.__setattr__(copies[0], _STAGE, stage)
            made[operation] = place + 1
        return cloned

    return clone
