"""What processes that train a model together agree on, and which of them writes files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Generator
from typing import Any

import jax

from ipujax.distribution.agree import check_agreement
from ipujax.distribution.collectives import sent_by
from ipujax.distribution.join import instance
from ipujax.errors import KerasFileError
from ipujax.keras.mode import Mode, State
from ipujax.keras.strategy import current

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
"""Attributes of these callbacks that hold the place where they write."""


def agree_on_batches(mode: Mode, count: int, incomplete: int | None = None) -> None:
    """Refuses data sets of which one ends before the others.

    Args:
      mode: of the program.
      count: batches of the data set, or, where nobody knows, of the next execution.
      incomplete: examples in the last one, if it has fewer than the others.

    Raises:
      DistributionError: (a `ValueError`) another process has another number of batches.
    """
    last = f", the last of {incomplete} examples" if incomplete else ""
    name = f"data of model {mode.model.name}"
    fix = "deal the data so that all instances have as much, or give steps_per_epoch"
    check_agreement(name, f"{count} batches{last}", "data set", fix)


def of_the_chief(mode: Mode, state: State) -> State:
    """What process 0 has, in all.

    Raises:
      DistributionError: (a `ValueError`) another process has another model.
    """
    shapes = jax.tree.leaves(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", state))
    check_agreement(f"variables of model {mode.model.name}", "\n".join(shapes), "list")
    return sent_by(0, state)


def extend() -> None:
    """Has callbacks of Keras's write files in one process, in the scope of a strategy."""
    for path, methods in _WRITERS.items():
        module, _, name = path.partition(".")
        kind = getattr(importlib.import_module(f"keras.src.callbacks.{module}"), name)
        for method in methods.split():
            setattr(kind, method, _of_the_chief_alone(getattr(kind, method)))


def _of_the_chief_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        here = instance()
        if current() is None:
            return original(self, *args, **kwargs)
        if here is None or here.index == 0:
            with name_unwritable_file(self):
                return original(self, *args, **kwargs)
        return None

    return method


@contextlib.contextmanager
def name_unwritable_file(callback: Any) -> Generator[None]:
    """Has an error of the disk say which callback could not write, where, and how to mend it.

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
