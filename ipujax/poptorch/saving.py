"""The files of compiled models, which `compileAndExport` writes and `load` reads.

The file is a pickle, as the original's was: `Saved.read_model_file` runs the code that it
names, `SavedData.read_model_data` does not.

A file holds the module with its weights, the optimizer with its state, the options, the shapes and
dtypes of the arguments and the state of random numbers. The program is built from these again;
with `enableExecutableCaching`, or `POPTORCH_CACHE_DIR`, nothing is compiled then.
"""

from __future__ import annotations

import dataclasses as dc
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import torch

from ipujax.ground import (
    PopTorchError,
    PopTorchFileError,
    UnfitFileError,
    open_regular_file,
    replace_file,
)
from ipujax.poptorch.enums import ConnectionType
from ipujax.poptorch.model_arguments import Arguments
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.groups import DistributedOptions
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.unpickle_data import iterate_weights, read_torch_file_data

_FORMAT = "ipujax.poptorch"
_VERSION = 1
_NAME = "model.poptorch"


@dc.dataclass(frozen=True)
class Saved:
    """The contents of a file of a compiled model.

    Attributes:
      training: whether the model trains.
      options: the options of the model.
      arguments: the arguments that it was compiled for; the tensors' values do not matter.
      rng_state: the state of random numbers, as `PoplarExecutor.rng_state`; None if not saved.
      mode: whether the module was in training mode when it was wrapped.
      module: the module with its weights; None if not saved.
      optimizer: the optimizer with its state; None if not saved, or in inference.
    """

    training: bool
    options: Options
    arguments: Arguments
    rng_state: list[int] | None
    mode: bool
    module: torch.nn.Module | None
    optimizer: torch.optim.Optimizer | None

    def write_model_file(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, whole or not at all; in a folder it is called model.poptorch.

        Raises:
          PopTorchError: (a `ValueError`) a module, or something else, that cannot be pickled.
        """
        file = Path(path)
        if file.is_dir():
            logger.warning("save(): %s is a directory, saving model to %s", file, file / _NAME)
            file = file / _NAME
        file.parent.mkdir(parents=True, exist_ok=True)
        fields = {field.name: getattr(self, field.name) for field in dc.fields(self)}
        fields["arguments"] = tuple(self.arguments)
        try:
            with replace_file(file) as stream:
                torch.save({"format": _FORMAT, "version": _VERSION, **fields}, stream)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PopTorchError(
                f"the model cannot be saved in {file}: {error}",
                fix="define its class at the top of a module that can be imported, or save the "
                "executable alone: export_model=False",
            ) from error

    @classmethod
    def read_model_file(cls, path: str | os.PathLike[str]) -> Saved:
        """Reads a file of a compiled model; runs the code that its pickle names.

        Raises:
          PopTorchFileError: (an `OSError`) no file, or one that holds no model of PopTorch.
        """
        check.require_path(path, "the name of the file")
        try:
            # The file is the user's own, and holds a module of any class.
            with open_regular_file(path) as stream:
                fields = torch.load(stream, weights_only=False)
        except UnfitFileError as error:
            raise _invalid_file_error(path, str(error)) from error
        except FileNotFoundError as error:
            raise PopTorchFileError(f"there is no file {os.fspath(path)}") from error
        except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
            raise _invalid_file_error(path, f"cannot be read: {error}") from error
        except (ImportError, AttributeError) as error:
            raise _invalid_file_error(
                path, f"needs a class that cannot be imported here: {error}"
            ) from error
        if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
            raise _invalid_file_error(path, "holds no model of PopTorch")
        if (version := fields.pop("version", None)) != _VERSION:
            raise _invalid_file_error(
                path, f"has version {version}, and this ipujax reads {_VERSION}"
            )
        fields["arguments"] = Arguments(*fields["arguments"])
        return cls(**fields)


@dc.dataclass(frozen=True)
class SavedData:
    """The contents of a file of a compiled model that can be read without running its code.

    Attributes:
      training, rng_state, mode, arguments: as in `Saved`.
      weights: the weights of its module, by name; empty if the module was not saved.
    """

    training: bool
    arguments: Arguments
    rng_state: list[int] | None
    mode: bool
    weights: dict[str, torch.Tensor]

    @classmethod
    def read_model_data(cls, path: str | os.PathLike[str]) -> SavedData:
        """Reads a file without running any code that it names.

        Raises:
          PopTorchFileError: (an `OSError`) no file, one that holds no model of PopTorch, or
            one whose arguments are objects of the user's classes.
        """
        check.require_path(path, "the name of the file")
        try:
            fields = read_torch_file_data(path)
        except FileNotFoundError as error:
            raise PopTorchFileError(f"there is no file {os.fspath(path)}") from error
        except (OSError, ValueError) as error:
            raise _invalid_file_error(path, f"cannot be read: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise _invalid_file_error(path, "holds no model of PopTorch")
        if fields.get("version") != _VERSION:
            raise _invalid_file_error(
                path, f"has version {fields.get('version')!r:.50}, not {_VERSION}"
            )
        try:
            arguments = Arguments(*fields["arguments"])
            _check_plain_arguments(arguments)
            state, flags = fields["rng_state"], (fields["training"], fields["mode"])
            is_state = state is None or isinstance(state, list)
            if not is_state or not all(type(number) is int for number in state or ()):  # pyright: ignore
                raise TypeError("its state of random numbers is no list of integers")
            if not all(type(flag) is bool for flag in flags):
                raise TypeError("its flags are no booleans")
            weights = dict(iterate_weights(fields["module"]))
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            raise _invalid_file_error(
                path, f"is not understood without its code: {error}"
            ) from error
        return cls(flags[0], arguments, state, flags[1], weights)


def _check_plain_arguments(value: object) -> None:
    """Checks that arguments consist of tensors, numbers, texts and containers.

    Raises:
      TypeError: they hold an object of another class.
    """
    if isinstance(value, list | tuple):
        for element in value:  # pyright: ignore[reportUnknownVariableType]
            _check_plain_arguments(element)
    elif isinstance(value, dict):
        for key, element in value.items():  # pyright: ignore[reportUnknownVariableType]
            _check_plain_arguments(key)
            _check_plain_arguments(element)
    elif not isinstance(value, torch.Tensor | int | float | complex | str | None):
        raise TypeError("its arguments are objects of other classes than tensors and containers")


def copy_for_editing(options: Options, edit: Callable[[Options], object] | None) -> Options:
    """Copies the options of a file for a model that runs in this process, and edits them.

    Options of an offline target, which are for compiling only, are dropped; the process id is that
    of this process.

    Args:
      options: the options that were saved.
      edit: a function of the user's that changes the copy.
    """
    editable_options = options.clone()
    editable_options.deleteIfExists("ipu_version")
    if editable_options.Distributed.numProcesses > 1:
        editable_options._distributed = DistributedOptions()  # pyright: ignore[reportPrivateUsage]
    if editable_options.connection_type is ConnectionType.Never:
        editable_options.connectionType(ConnectionType.Always)
    if edit is not None:
        edit(editable_options)
    return editable_options


def _invalid_file_error(path: str | os.PathLike[str], problem: str) -> PopTorchFileError:
    return PopTorchFileError(f"Invalid file {os.fspath(path)}: it {problem}")
