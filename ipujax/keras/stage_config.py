"""The pipeline stages in a Keras model's configuration, with which they are saved.

The stages are saved beside each layer's own configuration, under a key that Keras does not read: a
file with stages loads everywhere, and in a process without ipujax it is a model without stages.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ipujax.ground import Json
from ipujax.keras.model_stages import (
    Entry,
    assign_stages,
    calls_of_model,
    is_graph,
    iterate_stage_numbers,
    model_classes,
    stages_of_model,
)

if TYPE_CHECKING:
    import keras

_KEY = "ipu_pipeline_stages"

_lock = threading.Lock()


def extend_model_configs() -> None:
    """Extends the configurations of Keras's models by their stages, once in a process."""
    with _lock:
        _patch_get_config_of_keras_models()


@functools.cache
def _patch_get_config_of_keras_models() -> None:
    model, functional, sequential = model_classes()
    for model_class in (functional, sequential):
        model_class.get_config = _wrap_get_config(model_class.get_config)
    for model_class in (model, sequential):
        model_class.from_config = classmethod(_wrap_from_config(model_class.from_config.__func__))


def _wrap_get_config(original: Callable[..., Json]) -> Callable[..., Json]:
    @functools.wraps(original)
    def get_config(self: keras.Model) -> Json:
        config = original(self)
        if is_graph(self) and "layers" in config:
            _write_stages(self, config["layers"])
        return config

    return get_config


def _wrap_from_config(original: Callable[..., keras.Model]) -> Callable[..., keras.Model]:
    @functools.wraps(original)
    def from_config(
        cls: type[keras.Model], config: Json, custom_objects: object = None
    ) -> keras.Model:
        layers = list(config.get("layers", ()))  # Keras empties the configuration as it goes
        model = original(cls, config, custom_objects=custom_objects)
        if is_graph(model) and any(_KEY in layer for layer in layers):
            _assign_saved_stages(model, layers)
        return model

    return from_config


def _write_stages(model: keras.Model, layers: list[Json]) -> None:
    """Adds a model's stages, if it has any, to the configurations of its layers."""
    stages = stages_of_model(model)
    if all(stage is None for stage in iterate_stage_numbers(stages)):
        return
    by_layer = _index_calls_by_layer(model)
    for layer in layers:
        if call_indices := by_layer.get(_configured_layer_name(layer)):
            layer[_KEY] = [stages[call_index] for call_index in call_indices]


def _assign_saved_stages(model: keras.Model, layers: Iterable[Json]) -> None:
    """Assigns the stages that the configurations of a model's layers hold."""
    by_layer, entries = _index_calls_by_layer(model), dict[int, Entry]()
    for layer in layers:
        call_indices = by_layer.get(_configured_layer_name(layer), [])
        entries |= zip(call_indices, map(_parse_saved_entry, layer.get(_KEY, [])), strict=True)
    assign_stages(
        model, tuple(entries.get(call_index) for call_index in range(len(calls_of_model(model))))
    )


def _index_calls_by_layer(model: keras.Model) -> dict[str, list[int]]:
    """Returns the indices of each layer's calls among a model's stages, the first call first.

    A file keeps the order of a layer's calls, and not their numbers.
    """
    calls = calls_of_model(model)
    by_layer: dict[str, list[int]] = {}
    for call_index in sorted(range(len(calls)), key=lambda place: calls[place].node_index):
        by_layer.setdefault(calls[call_index].layer.name, []).append(call_index)
    return by_layer


def _configured_layer_name(layer: Json) -> str:
    """Returns the name of a layer or operation from its configuration."""
    return layer.get("name") or layer["config"].get("name", "")


def _parse_saved_entry(saved: Json) -> Entry:
    return (
        tuple(_parse_saved_entry(nested_entry) for nested_entry in saved)
        if isinstance(saved, list)
        else saved
    )
