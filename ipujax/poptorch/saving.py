"""Compiled models in files: what `compileAndExport` writes and `load` reads.

The file is a pickle, as the original's was: `Saved.read` runs what it names, `SavedData.read` does
not.

A file holds what the program is made of: the module with its weights, the optimizer with its state,
the options, the forms of the arguments and the state of random numbers. The program itself is made
of these again; with `enableExecutableCaching`, or `POPTORCH_CACHE_DIR`, nothing is compiled then.
"""

from __future__ import annotations

import dataclasses as dc
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ipujax.errors import PopTorchError, PopTorchFileError
from ipujax.host.files import UnfitFileError, reading, replacing
from ipujax.poptorch.arguments import Arguments
from ipujax.poptorch.checks import check
from ipujax.poptorch.data_only import read_data, weights_of
from ipujax.poptorch.enums import ConnectionType
from ipujax.poptorch.log import logger
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.groups import DistributedOptions

_FORMAT = "ipujax.poptorch"
_VERSION = 1
_NAME = "model.poptorch"


@dc.dataclass(frozen=True)
class Saved:
    """What a file holds.

    Attributes:
      training: whether the model trains.
      options: its options.
      arguments: of the call that it was compiled for; the tensors' values do not matter.
      rng_state: as `PoplarExecutor.rng_state`; None if it was not to be saved.
      mode: whether the module was in training mode when it was wrapped.
      module: with its weights; None if it was not to be saved.
      optimizer: with its state; None as well in inference.
    """

    training: bool
    options: Options
    arguments: Arguments
    rng_state: list[int] | None
    mode: bool
    module: torch.nn.Module | None
    optimizer: torch.optim.Optimizer | None

    def write(self, path: str | os.PathLike[str]) -> None:
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
            with replacing(file) as stream:
                torch.save({"format": _FORMAT, "version": _VERSION, **fields}, stream)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PopTorchError(
                f"the model cannot be saved in {file}: {error}",
                fix="define its class at the top of a module that can be imported, or save the "
                "executable alone: export_model=False",
            ) from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Saved:
        """Reads a file.

        Raises:
          PopTorchFileError: (an `OSError`) no file, or one that holds no model of PopTorch.
        """
        check.path(path, "the name of the file")
        try:
            # The file is the user's own, and holds a module of any class.
            with reading(path) as stream:
                fields = torch.load(stream, weights_only=False)
        except UnfitFileError as error:
            raise _foreign(path, str(error)) from error
        except FileNotFoundError as error:
            raise PopTorchFileError(f"there is no file {os.fspath(path)}") from error
        except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
            raise _foreign(path, f"cannot be read: {error}") from error
        except (ImportError, AttributeError) as error:
            raise _foreign(path, f"needs a class that cannot be imported here: {error}") from error
        if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
            raise _foreign(path, "holds no model of PopTorch")
        if (version := fields.pop("version", None)) != _VERSION:
            raise _foreign(path, f"has version {version}, and this ipujax reads {_VERSION}")
        fields["arguments"] = Arguments(*fields["arguments"])
        return cls(**fields)


@dc.dataclass(frozen=True)
class SavedData:
    """What a file holds beside its code: nothing that it names has run.

    Attributes:
      training, rng_state, mode, arguments: as of `Saved`.
      weights: of its module, by name; empty if that was not saved.
    """

    training: bool
    arguments: Arguments
    rng_state: list[int] | None
    mode: bool
    weights: dict[str, torch.Tensor]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SavedData:
        """Reads a file without running anything that it names.

        Raises:
          PopTorchFileError: (an `OSError`) no file, one that holds no model of PopTorch, or
            arguments of classes of somebody's.
        """
        check.path(path, "the name of the file")
        try:
            fields = read_data(path)
        except FileNotFoundError as error:
            raise PopTorchFileError(f"there is no file {os.fspath(path)}") from error
        except (OSError, ValueError) as error:
            raise _foreign(path, f"cannot be read: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise _foreign(path, "holds no model of PopTorch")
        if fields.get("version") != _VERSION:
            raise _foreign(path, f"has version {fields.get('version')!r:.50}, not {_VERSION}")
        try:
            arguments = Arguments(*fields["arguments"])
            _check_plain(arguments)
            state, flags = fields["rng_state"], (fields["training"], fields["mode"])
            is_state = state is None or isinstance(state, list)
            if not is_state or not all(type(number) is int for number in state or ()):  # pyright: ignore
                raise TypeError("its state of random numbers is none")
            if not all(type(flag) is bool for flag in flags):
                raise TypeError("its flags are none")
            weights = dict(weights_of(fields["module"]))
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            raise _foreign(path, f"is not understood without its code: {error}") from error
        return cls(flags[0], arguments, state, flags[1], weights)


def _check_plain(value: Any) -> None:
    """Refuses values of classes that are not looked for.

    Raises:
      TypeError: such a value.
    """
    if isinstance(value, list | tuple):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            _check_plain(each)
    elif isinstance(value, dict):
        for key, each in value.items():  # pyright: ignore[reportUnknownVariableType]
            _check_plain(key)
            _check_plain(each)
    elif not isinstance(value, torch.Tensor | int | float | complex | str | None):
        raise TypeError("its arguments are objects of other classes than tensors and containers")


def editable(options: Options, edit: Callable[[Options], Any] | None) -> Options:
    """The options of a file, for a model that is to run here and now.

    Those of an offline target are for compiling only, and are left behind; which of several
    processes this is, is what holds here.

    Args:
      options: as they were.
      edit: changes them.
    """
    own = options.clone()
    own.deleteIfExists("ipu_version")
    if own.Distributed.numProcesses > 1:
        own._distributed = DistributedOptions()  # pyright: ignore[reportPrivateUsage]
    if own.connection_type is ConnectionType.Never:
        own.connectionType(ConnectionType.Always)
    if edit is not None:
        edit(own)
    return own


def _foreign(path: str | os.PathLike[str], what: str) -> PopTorchFileError:
    return PopTorchFileError(f"Invalid file {os.fspath(path)}: it {what}")
