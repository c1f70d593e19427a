"""Keras's `BackupAndRestore` in the scope of a strategy: it resumes a training exactly.

Keras writes the weights into one file and the epoch into another, begins the epoch anew, and draws
other random numbers than the training that was interrupted. In the scope one file, which is written
whole or not at all, has all that a training resumes from: weights and the optimizer's variables as
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

from ipujax.distribution import broadcast_from_process, concatenate_over_processes
from ipujax.ground import files, get_joined_instance
from ipujax.keras import data_positions
from ipujax.keras.atomic_saving import is_remote
from ipujax.keras.data_positions import Position
from ipujax.keras.keras_checks import check
from ipujax.keras.process_agreement import name_unwritable_file
from ipujax.keras.program_mode import seed_states
from ipujax.keras.strategy import current_strategy

_GROUP = "ipujax"  # in the file of weights
_POSITIONS, _SEEDS, _METRICS = "positions", "seeds", "metrics"  # in the group
_ANEW = "delete the folder to begin the training anew"


def extend_backup_callback() -> None:
    """Extends `BackupAndRestore` to save and restore the whole state of a training, in a scope."""
    module = importlib.import_module("keras.src.callbacks.backup_and_restore")
    callback_class = module.BackupAndRestore
    for name, replacement in {
        "on_train_begin": _restore_at_train_begin,
        "on_epoch_begin": _note_epoch,
        "on_train_end": _remove_backup,
        "_load_model": _restore_backup,
        "_save_model": _save_backup,
    }.items():
        setattr(callback_class, name, _replace_in_scope(getattr(callback_class, name), replacement))


def _replace_in_scope(
    original: Callable[..., object], replacement: Callable[..., object]
) -> Callable[..., object]:
    """Returns a method that calls a replacement in a strategy's scope, for local folders."""

    @functools.wraps(original)
    def call_by_scope_and_folder(callback: Any, *args: object, **kwargs: object) -> object:
        if current_strategy() is None or is_remote(callback.backup_dir):
            return original(callback, *args, **kwargs)
        return replacement(original, callback, *args, **kwargs)

    return call_by_scope_and_folder


def _restore_at_train_begin(
    original: Callable[..., object], callback: Any, logs: object = None
) -> None:
    """Restores a backup by Keras, which tries the previous one if the newest is unreadable."""
    try:
        original(callback, logs)
    except OSError as error:
        raise check.value_error(
            f"the backup {callback._weights_path} cannot be read: {error}", _ANEW
        ) from error


def _note_epoch(
    original: Callable[..., object], callback: Any, epoch: int, logs: object = None
) -> None:
    """Notes the epoch, which Keras does not know before the first epoch ends."""
    original(callback, epoch, logs)
    callback._current_epoch = epoch
    callback.model._initial_epoch = None  # `fit` has read it already; the next `fit` must not
    values = vars(callback).pop("_ipu_metrics", ())
    for variable, value in zip(callback.model.metrics_variables, values, strict=False):
        variable.assign(value)


def _remove_backup(original: Callable[..., object], callback: Any, logs: object = None) -> None:
    """Removes the backup folder at once, so that no part of it can be taken for a backup."""
    if not callback.delete_checkpoint or not os.path.isdir(callback.backup_dir):
        return
    try:
        files.remove_at_once(callback.backup_dir)
    except OSError:  # for example a mount point, which cannot be renamed
        original(callback, logs)


def _save_backup(original: Callable[..., object], callback: Any) -> None:
    """Writes a backup of the model and of every process's position in the data."""
    del original
    is_epoch_over = callback.save_freq == "epoch"
    batches = 0 if is_epoch_over else callback._last_batch_seen + 1
    position = data_positions.position_of_training(
        _find_epoch_iterator(callback), callback._current_epoch, batches
    )
    position_line = json.dumps(dc.asdict(position), default=lambda array: array.tolist())
    all_positions = bytes(
        concatenate_over_processes(np.frombuffer(position_line.encode() + b"\n", np.uint8))
    )
    process = get_joined_instance()
    if process is not None and process.index:
        return
    with name_unwritable_file(callback):
        _write_backup_files(callback, all_positions, position)


def _write_backup_files(callback: Any, all_positions: bytes, position: Position) -> None:
    """Writes the files of a backup.

    Args:
      callback: the `BackupAndRestore` callback of the model.
      all_positions: the positions of all processes, one a line.
      position: the position of this process.
    """
    model = callback.model
    os.makedirs(callback.backup_dir, exist_ok=True)
    if callback.double_checkpoint:
        _copy_previous(callback)
    with files.replace_file_by_name(callback._weights_path) as path:
        model.save_weights(path, overwrite=True)
        _add_training_state(
            path,
            all_positions,
            seed_states(model),
            model.metrics_variables if position.batches else (),
        )
    # Keras reads this file outside the scope; inside, the file of weights holds the position.
    metadata = {"epoch": callback._current_epoch, "batch": callback._last_batch_seen}
    files.write_text(callback._training_metadata_path, json.dumps(metadata))


def _copy_previous(callback: Any) -> None:
    file_utils = importlib.import_module("keras.src.utils.file_utils")
    for path in (callback._weights_path, callback._training_metadata_path):
        if os.path.exists(path):
            file_utils.copy(path, f"{path}.bkp")


def _add_training_state(path: str, all_positions: bytes, seeds: Any, metrics: Any) -> None:
    """Adds positions, seeds and metrics to Keras's file of weights."""
    with importlib.import_module("h5py").File(path, "r+") as file:
        group = file.create_group(_GROUP)
        group[_POSITIONS] = np.frombuffer(all_positions, np.uint8)
        for name, variables in {_SEEDS: seeds, _METRICS: metrics}.items():
            values = group.create_group(name)
            for number, variable in enumerate(variables):
                values[str(number)] = _convert_to_hdf5_dtype(np.asarray(variable.value))


def _convert_to_hdf5_dtype(array: np.ndarray) -> np.ndarray:
    """Returns an array in a dtype that HDF5 has, with the same numbers."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _restore_backup(original: Callable[..., object], callback: Any) -> None:
    """Restores the newest backup, if there is one."""
    model = callback.model
    train_function = model.train_function
    callback._ipu_epochs = getattr(train_function, "epochs", None)
    has_weights = os.path.exists(callback._weights_path)
    all_positions = (
        _restore_variables(original, callback) if has_weights or not model.built else b""
    )
    process = get_joined_instance()
    if process is not None and process.count > 1:
        all_positions = _broadcast_text(all_positions)
    if not all_positions:
        return
    lines = all_positions.splitlines()
    index = 0 if process is None else process.index
    position = Position(**json.loads(lines[index if index < len(lines) else 0]))
    model._initial_epoch = data_positions.resume_at_position(
        _find_epoch_iterator(callback), position
    )
    callback._last_batch_seen = max(position.batches - 1, 0)


def _restore_variables(original: Callable[..., object], callback: Any) -> bytes:
    """Restores a model's variables; returns the positions of all processes, one a line."""
    try:
        original(callback)
    except json.JSONDecodeError as error:
        # The metadata are not needed where the file of weights holds the positions.
        if not (all_positions := _restore_training_state(callback)):
            metadata_path = callback._training_metadata_path
            raise check.value_error(
                f"the backup's {metadata_path} is no JSON: {error}", _ANEW
            ) from error
        return all_positions
    epoch = callback.model._initial_epoch or 0
    return _restore_training_state(callback) or json.dumps(dc.asdict(Position(epoch))).encode()


def _restore_training_state(callback: Any) -> bytes:
    """Restores seeds and metrics; returns the positions, empty for a backup of plain Keras."""
    path = callback._weights_path
    with importlib.import_module("h5py").File(path, "r") as file:
        if _GROUP not in file:
            return b""
        group = file[_GROUP]
        seeds, metrics = _read_values(group[_SEEDS]), _read_values(group[_METRICS])
        all_positions = group[_POSITIONS][()].tobytes()
    variables = list(seed_states(callback.model))
    if len(variables) != len(seeds):
        raise check.value_error(
            f"the backup {path} is of a model with {len(seeds)} random generators, and model "
            f"{callback.model.name!r} has {len(variables)}",
            f"make the model as it was, or {_ANEW}",
        )
    for variable, value in zip(variables, seeds, strict=True):
        variable.assign(value)
    callback._ipu_metrics = metrics
    return all_positions


def _read_values(group: Any) -> Sequence[Any]:
    return [group[str(number)][()] for number in range(len(group))]


def _find_epoch_iterator(callback: Any) -> Any:
    """Returns the `EpochIterator` of the training; None outside of one."""
    reference = vars(callback).get("_ipu_epochs")
    return None if reference is None else reference()


def _broadcast_text(text: bytes) -> bytes:
    """Returns the text that process 0 has read, on all processes."""
    length = int(broadcast_from_process(0, np.int32(len(text))))
    content = np.frombuffer(text[:length].ljust(length, b"\n"), np.uint8)
    return bytes(broadcast_from_process(0, content).astype(np.uint8))
