"""The reading of a PyTorch file's data without its code: nothing that the file names runs.

Tensors are read; objects of every other class become `Inert` ones, which keep their state.
"""

from __future__ import annotations

import os
import pickle
import sys
import types
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

_TENSORS = "torch._utils"
_REBUILDING = ("_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_tensor")
_MOST_FILES = 1_000_000  # of an archive


class Inert:
    """A stand-in for an object of any class that is not looked up."""

    def __new__(cls, *_: object, **__: object) -> Inert:
        """Makes the stand-in, whatever arguments the class would take."""
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: object) -> None:
        self.state: Any = {}

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignores an entry of a dictionary of another class."""

    def append(self, value: object) -> None:
        """Ignores an entry of a list of another class."""

    def extend(self, values: object) -> None:
        """Ignores the entries of a list of another class."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if module == _TENSORS and name in _REBUILDING:
            return getattr(sys.modules[_TENSORS], name)
        if module == "collections" and name == "OrderedDict":
            return dict
        attribute = vars(torch).get(name) if module == "torch" else None
        is_storage = isinstance(attribute, type) and name.endswith("Storage")
        if is_storage or isinstance(attribute, torch.dtype) or attribute is torch.Size:
            return attribute
        return Inert


def read_torch_file_data(path: str | os.PathLike[str]) -> Any:
    """Reads a file that `torch.save` wrote, without running code that it names.

    Raises:
      OSError: a file that cannot be read.
      ValueError: the file is broken, or was not written by `torch.save`.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive that torch.save wrote")
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"its archive is broken: {error}") from error
    if len(names) > _MOST_FILES or any(name.endswith("constants.pkl") for name in names):
        raise ValueError("it holds a program of TorchScript")
    loader: Any = types.SimpleNamespace(Unpickler=_Unpickler, __name__="data_only")
    try:
        return torch.load(path, map_location="cpu", pickle_module=loader, weights_only=False)
    except OSError:
        raise
    except Exception as error:  # whatever a broken pickle has it do
        raise ValueError(f"{type(error).__name__}: {error}") from error


def iterate_weights(module: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the names and values of weights and buffers of a module that was read."""
    state = getattr(module, "state", None)
    if not isinstance(module, Inert) or not isinstance(state, dict):
        return
    for kind in ("_parameters", "_buffers"):
        tensors: Any = state.get(kind)
        for name, tensor in tensors.items() if isinstance(tensors, dict) else ():
            if isinstance(tensor, torch.Tensor):
                yield f"{path}{name}", tensor
    submodules: object = state.get("_modules")
    for name, submodule in submodules.items() if isinstance(submodules, dict) else ():
        yield from iterate_weights(submodule, f"{path}{name}.")
