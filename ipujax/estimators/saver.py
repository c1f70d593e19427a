"""When a training is saved."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ipujax.checkpoints.position import Position
from ipujax.estimators.data import DataSet
from ipujax.estimators.event_files import EventFile
from ipujax.estimators.folder import ModelFolder
from ipujax.estimators.hooks import Session
from ipujax.estimators.listeners import CheckpointSaverListener, tell_around_saving
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
      listeners: told of each checkpoint, by the chief.
      events: where they may write.
    """

    def __init__(
        self,
        folder: ModelFolder,
        mode: Mode,
        data: DataSet,
        steps: int | None,
        seconds: float | None,
        listeners: Sequence[CheckpointSaverListener],
        events: EventFile,
    ):
        self._folder, self._mode, self._data = folder, mode, data
        self._steps, self._seconds = steps, seconds
        self._began = self._saved_step = 0
        self._saved_time = time.monotonic()
        self._listeners = listeners if mode.workers.is_chief else ()
        self._events, self._told_step = events, -1

    @classmethod
    def of(
        cls,
        config: RunConfig,
        folder: ModelFolder,
        mode: Mode,
        data: DataSet,
        listeners: Sequence[CheckpointSaverListener],
        events: EventFile,
    ) -> Saver:
        """Makes one that saves when the config says."""
        steps, seconds = config.save_checkpoints_steps, config.save_checkpoints_secs
        if config.train_distribute is None and not config.is_chief:  # somebody else does it
            steps, seconds, listeners = None, None, ()
        return cls(folder, mode, data, steps, seconds, listeners, events)

    def begin(self, run: Run) -> None:
        """Counts from here."""
        self._began = run.state.step
        self._saved_step, self._saved_time = run.state.step, time.monotonic()
        for listener in self._listeners:
            listener.begin()

    def after_run(self, run: Run, results: Tree) -> None:
        """Saves, if it is time."""
        if self._is_due(run):
            taken = (run.state.step - self._began) * run.replicas
            self._save(run, self._data.position(taken))

    def end(self, run: Run) -> None:
        """Saves the last state."""
        if self._steps or self._seconds:
            self._save(run, None)
        for listener in self._listeners:
            listener.end(Session(run, self._events), run.state.step)

    def _is_due(self, run: Run) -> bool:
        if self._steps:
            return run.state.step - self._saved_step >= self._steps
        if not self._seconds:
            return False
        by_time = time.monotonic() - self._saved_time >= self._seconds
        return bool(self._mode.workers.of_chief(np.int32(by_time)))

    def _save(self, run: Run, position: Position | None) -> None:
        # The last checkpoint of a training may be one that was told already, without a position.
        told = () if run.state.step == self._told_step else self._listeners
        stops = tell_around_saving(
            told,
            Session(run, self._events),
            lambda: self._folder.save(self._mode.users(run.state), position),
        )
        self._told_step = run.state.step
        if self._mode.workers.of_chief(np.int32(stops)):
            run.request_stop()
        self._saved_step, self._saved_time = run.state.step, time.monotonic()
