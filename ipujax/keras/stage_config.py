"""Pipeline stages in the configuration of a Keras model, so that they are saved with it.

They stand beside each layer's own configuration, under a key that Keras does not read: a file with
stages loads everywhere, and in a process without ipujax it is a model without stages.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ipujax.keras.stages import (
    Entry,
    assign,
    calls_of,
    is_graph,
    leaves,
    model_classes,
    stages_of,
)

_KEY = "ipu_pipeline_stages"

_lock = threading.Lock()


def extend() -> None:
    """Extends the configurations of Keras's Sequential and functional models, once in a process."""
    with _lock:
        _extend()


@functools.cache
def _extend() -> None:
    model, functional, sequential = model_classes()
    for kind in (functional, sequential):
        kind.get_config = _writing(kind.get_config)
    for kind in (model, sequential):
        kind.from_config = classmethod(_reading(kind.from_config.__func__))


def _writing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_config(self: Any) -> Any:
        config = original(self)
        if is_graph(self) and "layers" in config:
            _write(self, config["layers"])
        return config

    return get_config


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        layers = list(config.get("layers", ()))  # Keras empties the configuration as it goes
        model = original(cls, config, custom_objects=custom_objects)
        if is_graph(model) and any(_KEY in layer for layer in layers):
            _read(model, layers)
        return model

    return from_config


def _write(model: Any, layers: list[dict[str, Any]]) -> None:
    """Adds a model's stages, if it has any, to the configurations of its layers."""
    stages = stages_of(model)
    if all(stage is None for stage in leaves(stages)):
        return
    by_layer = _by_layer(model)
    for layer in layers:
        if places := by_layer.get(_name(layer)):
            layer[_KEY] = [stages[place] for place in places]


def _read(model: Any, layers: Iterable[dict[str, Any]]) -> None:
    """Assigns the stages that the configurations of a model's layers hold."""
    by_layer, entries = _by_layer(model), dict[int, Entry]()
    for layer in layers:
        places = by_layer.get(_name(layer), [])
        entries |= zip(places, map(_entry, layer.get(_KEY, [])), strict=True)
    assign(model, tuple(entries.get(place) for place in range(len(calls_of(model)))))


def _by_layer(model: Any) -> dict[str, list[int]]:
    """Where in a model's stages the calls of a layer are, the layer's first call first.

    A file keeps the order of a layer's calls, and not their numbers.
    """
    calls = calls_of(model)
    by_layer: dict[str, list[int]] = {}
    for place in sorted(range(len(calls)), key=lambda place: calls[place].node_index):
        by_layer.setdefault(calls[place].layer.name, []).append(place)
    return by_layer


def _name(layer: dict[str, Any]) -> str:
    """The name of a layer or operation, from its configuration in a model's."""
    return layer.get("name") or layer["config"].get("name", "")


def _entry(saved: Any) -> Entry:
    return tuple(_entry(each) for each in saved) if isinstance(saved, list) else saved
