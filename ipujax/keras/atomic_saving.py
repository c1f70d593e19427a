"""Atomic saving of Keras's models and weights in the scope of a strategy.

Keras writes into the file that is there; a process that is killed meanwhile leaves half of one. In
the scope a new file takes the place of the old one when all of it is written.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ipujax.ground import files
from ipujax.keras.strategy import current_strategy

if TYPE_CHECKING:
    import keras

_WRITERS = {
    "keras.src.saving.saving_lib": ("save_model", "save_weights_only"),
    "keras.src.legacy.saving.legacy_h5_format": ("save_model_to_hdf5",),
}
"""Keras's modules that write models, and their functions of a model and a path."""
_MAKE_FOLDERS = frozenset({"save_model_to_hdf5"})
"""The functions that make the folder of the file, where there is none."""


def extend_saving() -> None:
    """Extends Keras to write its files atomically, in the scope of a strategy."""
    for module_name, names in _WRITERS.items():
        module = importlib.import_module(module_name)
        for name in names:
            setattr(module, name, _write_atomically(getattr(module, name)))


def is_remote(path: object) -> bool:
    """Returns whether Keras opens a path by other means than the file system."""
    file_utils = importlib.import_module("keras.src.utils.file_utils")
    return str(path).startswith("hf://") or bool(file_utils.is_remote_path(path))


def _write_atomically(original: Callable[..., object]) -> Callable[..., object]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def save_atomically(
        model: keras.Model, filepath: Any, *args: object, **kwargs: object
    ) -> object:
        arguments = signature.bind(model, filepath, *args, **kwargs).arguments
        if current_strategy() is None or not _is_one_file(arguments):
            return original(model, filepath, *args, **kwargs)
        if original.__name__ in _MAKE_FOLDERS:
            os.makedirs(os.path.dirname(os.path.abspath(filepath)), exist_ok=True)
        with files.replace_file_by_name(filepath) as path:
            return original(model, path, *args, **kwargs)

    return save_atomically


def _is_one_file(arguments: Mapping[str, Any]) -> bool:
    """Returns whether Keras is to write one file of the file system, no folder and no shards."""
    path = arguments["filepath"]
    if not isinstance(path, (str, os.PathLike)) or is_remote(path):
        return False
    return arguments.get("max_shard_size") is None and arguments.get("zipped", True)
