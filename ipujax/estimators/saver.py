"""When a training is saved."""

from __future__ import annotations

import time

import numpy as np

from ipujax.checkpoints.position import Position
from ipujax.estimators.data import DataSet
from ipujax.estimators.folder import ModelFolder
from ipujax.estimators.mode import Mode
from ipujax.ipu_run_config import RunConfig
from ipujax.training import Callback, Run
from ipujax.training.state import Tree


class Saver(Callback):
    """Saves a training after every so many steps or seconds, and at its end.

    A checkpoint in between says where the data set is: only one whose training never ended is gone
    on from there.

    Args:
      folder: where.
      mode: that trains.
      data: that it reads.
      steps: between two checkpoints; None for by time.
      seconds: the same; with neither nothing is saved.
    """

    def __init__(
        self,
        folder: ModelFolder,
        mode: Mode,
        data: DataSet,
        steps: int | None,
        seconds: float | None,
    ):
        self._folder, self._mode, self._data = folder, mode, data
        self._steps, self._seconds = steps, seconds
        self._began = self._saved_step = 0
        self._saved_time = time.monotonic()

    @classmethod
    def of(cls, config: RunConfig, folder: ModelFolder, mode: Mode, data: DataSet) -> Saver:
        """One that saves when the config says."""
        steps, seconds = config.save_checkpoints_steps, config.save_checkpoints_secs
        if config.train_distribute is None and not config.is_chief:  # somebody else does it
            steps = seconds = None
        return cls(folder, mode, data, steps, seconds)

    def begin(self, run: Run) -> None:
        """Counts from here."""
        self._began = run.state.step
        self._saved_step, self._saved_time = run.state.step, time.monotonic()

    def after_run(self, run: Run, results: Tree) -> None:
        """Saves, if it is time."""
        if self._is_due(run):
            taken = (run.state.step - self._began) * run.replicas
            self._save(run, self._data.position(taken))

    def end(self, run: Run) -> None:
        """Saves the last state."""
        if self._steps or self._seconds:
            self._save(run, None)

    def _is_due(self, run: Run) -> bool:
        if self._steps:
            return run.state.step - self._saved_step >= self._steps
        if not self._seconds:
            return False
        by_time = time.monotonic() - self._saved_time >= self._seconds
        return bool(self._mode.workers.of_chief(np.int32(by_time)))

    def _save(self, run: Run, position: Position | None) -> None:
        self._folder.save(self._mode.users(run.state), position)
        self._saved_step, self._saved_time = run.state.step, time.monotonic()
