"""The folder of an estimator: its checkpoints, and who trains in it."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from ipujax.checkpoints import store
from ipujax.checkpoints.folder import newest
from ipujax.checkpoints.position import Position
from ipujax.estimators.checks import check
from ipujax.estimators.workers import Workers
from ipujax.host import locks
from ipujax.ipu_run_config import RunConfig
from ipujax.training import TrainState
from ipujax.training.state import Tree

VARIABLES, STATE, OPTIMIZER, STEP = "variables", "state", "optimizer_state", "global_step"
_LOCK = "training.lock"


class ModelFolder:
    """Where the state of an estimator is kept.

    Args:
      model_dir: what the estimator was given.
      config: whose `model_dir` counts otherwise; a temporary folder where both are None.
      workers: that train together, of which the chief alone reads and writes.

    Attributes:
      path: of the folder.
    """

    def __init__(self, model_dir: Any, config: RunConfig, workers: Workers):
        given = check.path(model_dir, "model_dir") if model_dir is not None else None
        known = config.model_dir
        if given is not None and known is not None and os.fspath(given) != os.fspath(known):
            raise check.refuse(
                f"model_dir is {os.fspath(given)!r}, and that of config {os.fspath(known)!r}",
                "give one of them, or the same twice",
            )
        chosen = given if given is not None else known
        self.path = os.fspath(chosen) if chosen is not None else tempfile.mkdtemp(prefix="ipujax-")
        self._keep, self._workers = config.keep_checkpoint_max or 0, workers

    def eval_dir(self, name: str | None) -> str:
        """The folder of event files of an evaluation."""
        check.text(name, "the name of an evaluation", optional=True)
        return os.path.join(self.path, f"eval_{name}" if name else "eval")

    # --- checkpoints ----------------------------------------------------------------------------

    def latest(self) -> str | None:
        """The path of the newest checkpoint."""
        if store.latest_step(self.path) is None:
            return None
        return os.path.join(self.path, newest(self.path, None).name)

    def agreed(self) -> str | None:
        """The path of the chief's newest checkpoint, which all workers ask for together."""
        return self._workers.text_of_chief(self.latest() if self._workers.is_chief else None)

    def save(self, state: TrainState, position: Position | None) -> None:
        """Writes a checkpoint, as of the step of the state, with what all workers have of it."""
        whole = self._workers.averaged(state)
        if self._workers.is_chief:
            store.save(self.path, state.step, _tree(whole), self._keep, position)

    def restore(self, path: str, like: TrainState, parts: Sequence[str]) -> TrainState:
        """What a checkpoint holds, in the structure of a state.

        Args:
          path: of the checkpoint.
          like: a state of that structure.
          parts: what of it is read; everything else stays as in `like`.

        Raises:
          CheckpointError: (a `ValueError`) another structure, with all names that differ.
        """

        def read() -> dict[str, Tree]:
            folder, step = _parts(path)
            wanted = {part: _tree(like)[part] for part in parts}
            return store.restore(folder, wanted, step, partly=True).tree

        given = {part: _tree(like)[part] for part in parts}
        restored = _tree(like) | self._workers.chiefs(read, given)
        return TrainState(
            restored[VARIABLES], restored[OPTIMIZER], restored[STATE], int(restored[STEP])
        )

    def step_of(self, path: str) -> int:
        """When a checkpoint was made."""
        return _parts(path)[1]

    def position_in(self, path: str) -> Position | None:
        """Where the data set was, in a checkpoint that was made before its training ended."""

        def read() -> Position | None:
            folder, step = _parts(path)
            return store.restore(folder, {}, step, partly=True).position

        if not self._workers.are_several:
            return read()
        own = read() if self._workers.is_chief else None
        # Others have iterators of their own, and count elements.
        taken = int(self._workers.of_chief(np.int32(-1 if own is None else own.taken)))
        return own or (None if taken < 0 else Position(taken))

    def named(self) -> dict[str, Any]:
        """What the user knows of the newest checkpoint, by the user's names."""
        if self.latest() is None:
            raise check.refuse(
                f"{self.path} has no checkpoint yet", "train first, or give another model_dir"
            )
        named = store.restore(self.path).tree
        shown = {
            name.removeprefix(f"{VARIABLES}/"): value
            for name, value in named.items()
            if not name.startswith(f"{OPTIMIZER}/") and name != OPTIMIZER
        }
        return shown

    # --- who trains -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def in_training(self) -> Generator[bool]:
        """Keeps other processes from training here; tells whether one died while it did.

        Raises:
          EstimatorError: (a `ValueError`) another process trains here, or the folder cannot be
            written.
        """
        if not self._workers.is_chief:
            yield bool(self._workers.of_chief(np.int32(0)))
            return
        lock = os.path.join(self.path, _LOCK)
        try:
            os.makedirs(self.path, exist_ok=True)
            # Of several processes one that dies has the chief raise an error.
            with locks.locked(lock, self._workers.are_several) as was_there:
                yield bool(self._workers.of_chief(np.int32(was_there)))
        except locks.LockedError:
            raise check.refuse(
                f"another process, or another estimator, trains in {self.path}",
                "wait for its end, or give another model_dir",
            ) from None
        except (FileExistsError, NotADirectoryError) as error:
            if not self._holds(error.filename):
                raise
            raise check.refuse(
                f"model_dir {self.path} is no folder", "give a folder; it need not exist yet"
            ) from error
        except OSError as error:
            if not self._holds(error.filename):
                raise
            raise check.refuse(
                f"model_dir {self.path} cannot be written: {error.strerror}",
                "give a folder that can be",
            ) from error

    def _holds(self, path: object) -> bool:
        """Whether a path is this folder, its lock, or a folder above it."""
        places = (self.path, os.path.join(self.path, _LOCK))
        return path in places or f"{self.path}/".startswith(f"{path}/")


def _tree(state: TrainState) -> dict[str, Tree]:
    """A state as it is written."""
    return {
        VARIABLES: state.variables,
        STATE: state.state,
        OPTIMIZER: state.optimizer_state,
        STEP: np.int64(state.step),
    }


def _parts(path: str) -> tuple[str, int]:
    """Folder and step of a checkpoint; of a folder, those of its newest one."""
    shown = os.fspath(check.path(path, "checkpoint_path"))
    folder, name = os.path.split(shown)
    match = re.match(r"ckpt-(\d+)", name)
    if match is not None:
        return folder, int(match[1])
    if os.path.isdir(shown):
        return shown, newest(shown, None).step
    raise check.refuse(
        f"{shown} is no path of a checkpoint",
        "give one that latest_checkpoint() gave, or the folder of an estimator",
    )
