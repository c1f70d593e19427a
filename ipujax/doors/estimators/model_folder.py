"""The folder of an estimator: its checkpoints, and the lock of its training."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from ipujax.checkpoints import Position, find_checkpoint, store
from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.ipu_run_config import RunConfig
from ipujax.doors.estimators.workers import Workers
from ipujax.ground import PyTree
from ipujax.ground import file_locks as locks
from ipujax.training import TrainState, Tree

VARIABLES, STATE, OPTIMIZER, STEP = "variables", "state", "optimizer_state", "global_step"
_LOCK = "training.lock"


class ModelFolder:
    """The folder that keeps the state of an estimator.

    Args:
      model_dir: the folder that the estimator was given, or None.
      config: a `RunConfig` with another `model_dir`; a temporary folder replaces two Nones.
      workers: the workers that train together, of which the chief alone reads and writes.

    Attributes:
      path: the path of the folder.
    """

    def __init__(self, model_dir: Any, config: RunConfig, workers: Workers):
        checked_dir = check.require_path(model_dir, "model_dir") if model_dir is not None else None
        config_dir = config.model_dir
        if (
            checked_dir is not None
            and config_dir is not None
            and os.fspath(checked_dir) != os.fspath(config_dir)
        ):
            raise check.value_error(
                f"model_dir is {os.fspath(checked_dir)!r}, and that of config "
                f"{os.fspath(config_dir)!r}",
                "give one of them, or the same twice",
            )
        chosen_dir = checked_dir if checked_dir is not None else config_dir
        self.path = (
            os.fspath(chosen_dir) if chosen_dir is not None else tempfile.mkdtemp(prefix="ipujax-")
        )
        self._keep, self._workers = config.keep_checkpoint_max or 0, workers

    def eval_dir(self, name: str | None) -> str:
        """Returns the folder of event files of an evaluation."""
        check.require_text(name, "the name of an evaluation", optional=True)
        return os.path.join(self.path, f"eval_{name}" if name else "eval")

    # --- checkpoints ----------------------------------------------------------------------------

    def latest_checkpoint_path(self) -> str | None:
        """Returns the path of the newest checkpoint."""
        if store.latest_step(self.path) is None:
            return None
        return os.path.join(self.path, find_checkpoint(self.path, None).name)

    def latest_path_of_chief(self) -> str | None:
        """Returns the path of the chief's newest checkpoint, which all workers ask for."""
        return self._workers.broadcast_optional_text(
            self.latest_checkpoint_path() if self._workers.is_chief_process else None
        )

    def save_training_checkpoint(self, state: TrainState, position: Position | None) -> None:
        """Writes a checkpoint of a state's step, with the state of all workers together."""
        averaged_state = self._workers.average_untrained(state)
        if self._workers.is_chief_process:
            store.save_checkpoint(
                self.path, state.step, _tree_to_write(averaged_state), self._keep, position
            )

    def restore_parts(self, path: str, template: TrainState, parts: Sequence[str]) -> TrainState:
        """Returns a state with some parts read from a checkpoint.

        Args:
          path: the path of the checkpoint.
          template: a state of the structure of the result.
          parts: the parts that are read; all others stay as in `template`.

        Raises:
          CheckpointError: (a `ValueError`) another structure, with all names that differ.
        """

        def read_parts() -> dict[str, Tree]:
            folder, step = _split_checkpoint_path(path)
            templates = {part: _tree_to_write(template)[part] for part in parts}
            return store.restore_checkpoint(folder, templates, step, partly=True).tree

        part_templates = {part: _tree_to_write(template)[part] for part in parts}
        restored = _tree_to_write(template) | self._workers.find_on_chief(
            read_parts, part_templates
        )
        return TrainState(
            restored[VARIABLES], restored[OPTIMIZER], restored[STATE], int(restored[STEP])
        )

    def step_of_checkpoint(self, path: str) -> int:
        """Returns the global step of a checkpoint."""
        return _split_checkpoint_path(path)[1]

    def position_in_checkpoint(self, path: str) -> Position | None:
        """Returns the position in the data set of a checkpoint made during a training."""

        def read_position() -> Position | None:
            folder, step = _split_checkpoint_path(path)
            return store.restore_checkpoint(folder, {}, step, partly=True).position

        if not self._workers.are_several:
            return read_position()
        chief_position = read_position() if self._workers.is_chief_process else None
        # The other workers have iterators of their own, and count elements.
        num_elements = int(
            self._workers.broadcast_tree_of_chief(
                np.int32(-1 if chief_position is None else chief_position.taken)
            )
        )
        return chief_position or (None if num_elements < 0 else Position(num_elements))

    def read_values_by_name(self) -> dict[str, PyTree]:
        """Returns variables, state and step of the newest checkpoint, by the user's names."""
        if self.latest_checkpoint_path() is None:
            raise check.value_error(
                f"{self.path} has no checkpoint yet", "train first, or give another model_dir"
            )
        values = store.restore_checkpoint(self.path).tree
        visible_values = {
            name.removeprefix(f"{VARIABLES}/"): value
            for name, value in values.items()
            if not name.startswith(f"{OPTIMIZER}/") and name != OPTIMIZER
        }
        return visible_values

    # --- who trains -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock_for_training(self) -> Generator[bool]:
        """Locks the folder for one training; yields whether the last one was interrupted.

        Raises:
          EstimatorError: (a `ValueError`) another process trains here, or the folder cannot be
            written.
        """
        if not self._workers.is_chief_process:
            yield bool(self._workers.broadcast_tree_of_chief(np.int32(0)))
            return
        lock = os.path.join(self.path, _LOCK)
        try:
            os.makedirs(self.path, exist_ok=True)
            # Where one of several processes dies, the chief raises an error.
            with locks.hold_lock_file(lock, self._workers.are_several) as was_there:
                yield bool(self._workers.broadcast_tree_of_chief(np.int32(was_there)))
        except locks.LockedError:
            raise check.value_error(
                f"another process, or another estimator, trains in {self.path}",
                "wait for its end, or give another model_dir",
            ) from None
        except (FileExistsError, NotADirectoryError) as error:
            if not self._is_folder_or_parent(error.filename):
                raise
            raise check.value_error(
                f"model_dir {self.path} is no folder", "give a folder; it need not exist yet"
            ) from error
        except OSError as error:
            if not self._is_folder_or_parent(error.filename):
                raise
            raise check.value_error(
                f"model_dir {self.path} cannot be written: {error.strerror}",
                "give a folder that can be",
            ) from error

    def _is_folder_or_parent(self, path: object) -> bool:
        """Returns whether a path is this folder, its lock, or a folder above it."""
        own_paths = (self.path, os.path.join(self.path, _LOCK))
        return path in own_paths or f"{self.path}/".startswith(f"{path}/")


def _tree_to_write(state: TrainState) -> dict[str, Tree]:
    """Returns a state as the dict that is written."""
    return {
        VARIABLES: state.variables,
        STATE: state.state,
        OPTIMIZER: state.optimizer_state,
        STEP: np.int64(state.step),
    }


def _split_checkpoint_path(path: str) -> tuple[str, int]:
    """Returns the folder and step of a checkpoint; for a folder, of its newest checkpoint."""
    checked_path = os.fspath(check.require_path(path, "checkpoint_path"))
    folder, name = os.path.split(checked_path)
    match = re.match(r"ckpt-(\d+)", name)
    if match is not None:
        return folder, int(match[1])
    if os.path.isdir(checked_path):
        return checked_path, find_checkpoint(checked_path, None).step
    raise check.value_error(
        f"{checked_path} is no path of a checkpoint",
        "give one that latest_checkpoint() gave, or the folder of an estimator",
    )
