"""Keras's `BackupAndRestore` in the scope of a strategy: a training that goes on where it was.

Keras writes the weights into one file and the epoch into another, begins the epoch anew, and draws
other random numbers than the training that was interrupted. In the scope one file, which is written
whole or not at all, has all that a training goes on with: weights and the optimizer's variables as
Keras writes them, and beside them the epoch, the position in the data, the states of the random
generators of layers and of the host, and the metrics.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import importlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipujax.distribution.collectives import gathered, sent_by
from ipujax.distribution.join import instance
from ipujax.host import files
from ipujax.keras import positions
from ipujax.keras.checks import check
from ipujax.keras.instances import name_unwritable_file
from ipujax.keras.mode import seed_states
from ipujax.keras.positions import Position
from ipujax.keras.strategy import current
from ipujax.keras.whole_files import is_remote

_GROUP = "ipujax"  # in the file of weights
_POSITIONS, _SEEDS, _METRICS = "positions", "seeds", "metrics"  # in the group
_ANEW = "delete the folder to begin the training anew"


def extend() -> None:
    """Has `BackupAndRestore` keep all that a training goes on with, in the scope of a strategy."""
    module = importlib.import_module("keras.src.callbacks.backup_and_restore")
    kind = module.BackupAndRestore
    for name, ours in {
        "on_train_begin": _begin,
        "on_epoch_begin": _begin_epoch,
        "on_train_end": _end,
        "_load_model": _restore,
        "_save_model": _save,
    }.items():
        setattr(kind, name, _in_scope(getattr(kind, name), ours))


def _in_scope(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is ours in the scope of a strategy, for folders of the file system."""

    @functools.wraps(original)
    def method(callback: Any, *args: Any, **kwargs: Any) -> Any:
        if current() is None or is_remote(callback.backup_dir):
            return original(callback, *args, **kwargs)
        return ours(original, callback, *args, **kwargs)

    return method


def _begin(original: Callable[..., Any], callback: Any, logs: Any = None) -> None:
    """Keras restores, and tries the previous backup if the newest one cannot be read."""
    try:
        original(callback, logs)
    except OSError as error:
        raise check.refuse(
            f"the backup {callback._weights_path} cannot be read: {error}", _ANEW
        ) from error


def _begin_epoch(original: Callable[..., Any], callback: Any, epoch: int, logs: Any = None) -> None:
    """Notes the epoch, which Keras does not know before the first one ends."""
    original(callback, epoch, logs)
    callback._current_epoch = epoch
    callback.model._initial_epoch = None  # `fit` has read it, and the next one must not
    values = vars(callback).pop("_ipu_metrics", ())
    for variable, value in zip(callback.model.metrics_variables, values, strict=False):
        variable.assign(value)


def _end(original: Callable[..., Any], callback: Any, logs: Any = None) -> None:
    """Takes the backup away at once: no part of it must stay, to be taken for a backup."""
    if not callback.delete_checkpoint or not os.path.isdir(callback.backup_dir):
        return
    try:
        files.remove(callback.backup_dir)
    except OSError:  # such as a folder on a disk of its own, which cannot be renamed
        original(callback, logs)


def _save(original: Callable[..., Any], callback: Any) -> None:
    """Writes the backup."""
    del original
    is_epoch_over = callback.save_freq == "epoch"
    batches = 0 if is_epoch_over else callback._last_batch_seen + 1
    position = positions.find_position(_epochs_of(callback), callback._current_epoch, batches)
    own_line = json.dumps(dc.asdict(position), default=lambda array: array.tolist())
    every = bytes(gathered(np.frombuffer(own_line.encode() + b"\n", np.uint8)))
    process = instance()
    if process is not None and process.index:
        return
    with name_unwritable_file(callback):
        _write(callback, every, position)


def _write(callback: Any, every: bytes, position: Position) -> None:
    """Writes the files of a backup.

    Args:
      callback: whose model it is of.
      every: the positions of all processes, one a line.
      position: that of this process.
    """
    model = callback.model
    os.makedirs(callback.backup_dir, exist_ok=True)
    if callback.double_checkpoint:
        _copy_previous(callback)
    with files.replacing_by_name(callback._weights_path) as path:
        model.save_weights(path, overwrite=True)
        _add(path, every, seed_states(model), model.metrics_variables if position.batches else ())
    # For Keras outside the scope; inside, the file of weights says it.
    metadata = {"epoch": callback._current_epoch, "batch": callback._last_batch_seen}
    files.write_text(callback._training_metadata_path, json.dumps(metadata))


def _copy_previous(callback: Any) -> None:
    file_utils = importlib.import_module("keras.src.utils.file_utils")
    for path in (callback._weights_path, callback._training_metadata_path):
        if os.path.exists(path):
            file_utils.copy(path, f"{path}.bkp")


def _add(path: str, every: bytes, seeds: Any, metrics: Any) -> None:
    """Adds to Keras's weights what else a training goes on with."""
    with importlib.import_module("h5py").File(path, "r+") as file:
        group = file.create_group(_GROUP)
        group[_POSITIONS] = np.frombuffer(every, np.uint8)
        for name, variables in {_SEEDS: seeds, _METRICS: metrics}.items():
            values = group.create_group(name)
            for number, variable in enumerate(variables):
                values[str(number)] = _storable(np.asarray(variable.value))


def _storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of a dtype that HDF5 has; its numbers are the same."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _restore(original: Callable[..., Any], callback: Any) -> None:
    """Restores the newest backup, if there is one."""
    model = callback.model
    function = model.train_function
    callback._ipu_epochs = getattr(function, "epochs", None)
    has_weights = os.path.exists(callback._weights_path)
    text = _restore_variables(original, callback) if has_weights or not model.built else b""
    process = instance()
    if process is not None and process.count > 1:
        text = _of_the_chief(text)
    if not text:
        return
    lines = text.splitlines()
    index = 0 if process is None else process.index
    position = Position(**json.loads(lines[index if index < len(lines) else 0]))
    model._initial_epoch = positions.go_on(_epochs_of(callback), position)
    callback._last_batch_seen = max(position.batches - 1, 0)


def _restore_variables(original: Callable[..., Any], callback: Any) -> bytes:
    """Restores the variables of a model; gives the positions of all processes, one a line."""
    try:
        original(callback)
    except json.JSONDecodeError as error:
        # Only the weights count if they say where the training was.
        if not (text := _restore_others(callback)):
            name = callback._training_metadata_path
            raise check.refuse(f"the backup's {name} is no JSON: {error}", _ANEW) from error
        return text
    epoch = callback.model._initial_epoch or 0
    return _restore_others(callback) or json.dumps(dc.asdict(Position(epoch))).encode()


def _restore_others(callback: Any) -> bytes:
    """Restores what Keras does not: the positions, which are empty in a backup of Keras's own."""
    path = callback._weights_path
    with importlib.import_module("h5py").File(path, "r") as file:
        if _GROUP not in file:
            return b""
        group = file[_GROUP]
        seeds, metrics = _read_values(group[_SEEDS]), _read_values(group[_METRICS])
        text = group[_POSITIONS][()].tobytes()
    variables = list(seed_states(callback.model))
    if len(variables) != len(seeds):
        raise check.refuse(
            f"the backup {path} is of a model with {len(seeds)} random generators, and model "
            f"{callback.model.name!r} has {len(variables)}",
            f"make the model as it was, or {_ANEW}",
        )
    for variable, value in zip(variables, seeds, strict=True):
        variable.assign(value)
    callback._ipu_metrics = metrics
    return text


def _read_values(group: Any) -> Sequence[Any]:
    return [group[str(number)][()] for number in range(len(group))]


def _epochs_of(callback: Any) -> Any:
    """The `EpochIterator` of the training; None outside of one."""
    reference = vars(callback).get("_ipu_epochs")
    return None if reference is None else reference()


def _of_the_chief(text: bytes) -> bytes:
    """Sends what process 0 has read to all processes."""
    length = int(sent_by(0, np.int32(len(text))))
    content = np.frombuffer(text[:length].ljust(length, b"\n"), np.uint8)
    return bytes(sent_by(0, content).astype(np.uint8))
