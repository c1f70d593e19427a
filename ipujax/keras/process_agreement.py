"""Agreement between the processes that train a Keras model together, and who writes files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Generator

import jax

from ipujax.distribution import broadcast_from_process, check_same_in_all_processes
from ipujax.ground import KerasFileError, get_joined_instance
from ipujax.keras.program_mode import ProgramMode, State
from ipujax.keras.strategy import current_strategy

_WRITERS = {
    "backup_and_restore.BackupAndRestore": "on_train_end",
    "csv_logger.CSVLogger": "on_train_begin on_epoch_end on_train_end",
    "model_checkpoint.ModelCheckpoint": "_save_model",
    "tensorboard.TensorBoard": (
        "set_model on_train_begin on_train_end on_test_begin on_test_end on_train_batch_begin "
        "on_train_batch_end on_test_batch_begin on_test_batch_end on_epoch_begin on_epoch_end"
    ),
}
"""Keras's callbacks that write files, and their methods in which they do."""

_PATHS = ("filepath", "_backup_dir", "backup_dir", "filename", "log_dir")
"""Attributes of these callbacks that hold the path of what they write."""


def agree_on_batches(mode: ProgramMode, count: int, incomplete: int | None = None) -> None:
    """Refuses data sets that have different numbers of batches in different processes.

    Args:
      mode: the mode of the program.
      count: batches of the data set, or, where its length is unknown, of the next execution.
      incomplete: examples in the last batch, if it has fewer than the others.

    Raises:
      DistributionError: (a `ValueError`) another process has another number of batches.
    """
    last_batch_text = f", the last of {incomplete} examples" if incomplete else ""
    name = f"data of model {mode.model.name}"
    fix = "deal the data so that all instances have as much, or give steps_per_epoch"
    check_same_in_all_processes(name, f"{count} batches{last_batch_text}", "data set", fix)


def broadcast_chief_state(mode: ProgramMode, state: State) -> State:
    """Returns the state of process 0, on all processes.

    Raises:
      DistributionError: (a `ValueError`) another process has another model.
    """
    shapes = jax.tree.leaves(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", state))
    check_same_in_all_processes(f"variables of model {mode.model.name}", "\n".join(shapes), "list")
    return broadcast_from_process(0, state)


def extend_file_callbacks() -> None:
    """Extends Keras's callbacks to write files in one process only, in a strategy's scope."""
    for path, methods in _WRITERS.items():
        module, _, name = path.partition(".")
        callback_class = getattr(importlib.import_module(f"keras.src.callbacks.{module}"), name)
        for method in methods.split():
            setattr(callback_class, method, _run_on_chief_only(getattr(callback_class, method)))


def _run_on_chief_only(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def call_on_chief(self: object, *args: object, **kwargs: object) -> object:
        process = get_joined_instance()
        if current_strategy() is None:
            return original(self, *args, **kwargs)
        if process is None or process.index == 0:
            with name_unwritable_file(self):
                return original(self, *args, **kwargs)
        return None

    return call_on_chief


@contextlib.contextmanager
def name_unwritable_file(callback: object) -> Generator[None]:
    """Has an `OSError` name the callback that could not write, its path and the remedy.

    Raises:
      KerasFileError: (an `OSError`) in the place of any other `OSError`.
    """
    try:
        yield
    except KerasFileError:
        raise
    except OSError as error:
        path = next((str(getattr(callback, n)) for n in _PATHS if hasattr(callback, n)), "its file")
        reason = error.strerror if error.errno is None else os.strerror(error.errno)
        raise KerasFileError(
            f"{type(callback).__name__} cannot write {path}: {reason or error}",
            fix="make room there, or give the callback another path",
        ) from error
