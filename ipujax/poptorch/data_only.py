"""The data of a file that pickle wrote, without its code: nothing that the file names runs.

What tensors are made of is made; objects of every other class become `Inert` ones, which keep what
they would have been given.
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
    """What stands for an object of a class that is not looked for."""

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        """Takes whatever the class would."""
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Entries of dictionaries of other classes are not kept."""

    def append(self, value: Any) -> None:
        """Entries of lists of other classes are not kept."""

    def extend(self, values: Any) -> None:
        """The same."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if module == _TENSORS and name in _REBUILDING:
            return getattr(sys.modules[_TENSORS], name)
        if module == "collections" and name == "OrderedDict":
            return dict
        found = vars(torch).get(name) if module == "torch" else None
        is_storage = isinstance(found, type) and name.endswith("Storage")
        if is_storage or isinstance(found, torch.dtype) or found is torch.Size:
            return found
        return Inert


def read_data(path: str | os.PathLike[str]) -> Any:
    """What is in a file that `torch.save` wrote.

    Raises:
      OSError: a file that cannot be read.
      ValueError: no such file, or one that is broken.
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


def weights_of(module: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The weights and buffers of a module that was read, by their names."""
    state = getattr(module, "state", None)
    if not isinstance(module, Inert) or not isinstance(state, dict):
        return
    for kind in ("_parameters", "_buffers"):
        tensors: Any = state.get(kind)
        for name, tensor in tensors.items() if isinstance(tensors, dict) else ():
            if isinstance(tensor, torch.Tensor):
                yield f"{path}{name}", tensor
    below: Any = state.get("_modules")
    for name, inner in below.items() if isinstance(below, dict) else ():
        yield from weights_of(inner, f"{path}{name}.")
