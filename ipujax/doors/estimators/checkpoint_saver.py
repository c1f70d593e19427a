"""The saving of checkpoints during a training."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ipujax.checkpoints import Position
from ipujax.doors.estimators.estimator_mode import EstimatorMode
from ipujax.doors.estimators.event_files import EventFile
from ipujax.doors.estimators.input_data import DataSet
from ipujax.doors.estimators.ipu_run_config import RunConfig
from ipujax.doors.estimators.model_folder import ModelFolder
from ipujax.doors.estimators.saver_listeners import (
    CheckpointSaverListener,
    save_and_notify_listeners,
)
from ipujax.doors.estimators.session_hooks import Session
from ipujax.training import Callback, Run, Tree


class CheckpointSaver(Callback):
    """A callback that saves a training every so many steps or seconds, and at its end.

    A checkpoint before the end holds the position in the data set, from which an interrupted
    training resumes.

    Args:
      folder: the folder of checkpoints.
      mode: the mode that trains.
      data: the data set of the training.
      steps: the steps between two checkpoints; None to count seconds.
      seconds: the seconds between two checkpoints; with neither nothing is saved.
      listeners: the listeners that the chief calls for each checkpoint.
      events: the event file that listeners may write.
    """

    def __init__(
        self,
        folder: ModelFolder,
        mode: EstimatorMode,
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
        self._listeners = listeners if mode.workers.is_chief_process else ()
        self._events, self._told_step = events, -1

    @classmethod
    def saver_from_config(
        cls,
        config: RunConfig,
        folder: ModelFolder,
        mode: EstimatorMode,
        data: DataSet,
        listeners: Sequence[CheckpointSaverListener],
        events: EventFile,
    ) -> CheckpointSaver:
        """Makes a saver with the intervals of a `RunConfig`."""
        steps, seconds = config.save_checkpoints_steps, config.save_checkpoints_secs
        if config.train_distribute is None and not config.is_chief:  # another process saves
            steps, seconds, listeners = None, None, ()
        return cls(folder, mode, data, steps, seconds, listeners, events)

    def begin(self, run: Run) -> None:
        """Starts to count steps and seconds."""
        self._began = run.state.step
        self._saved_step, self._saved_time = run.state.step, time.monotonic()
        for listener in self._listeners:
            listener.begin()

    def after_run(self, run: Run, results: Tree) -> None:
        """Saves if it is due."""
        if self._is_due(run):
            num_elements = (run.state.step - self._began) * run.replicas
            self._save_and_notify(run, self._data.position_of_data_set(num_elements))

    def end(self, run: Run) -> None:
        """Saves the last state."""
        if self._steps or self._seconds:
            self._save_and_notify(run, None)
        for listener in self._listeners:
            listener.end(Session(run, self._events), run.state.step)

    def _is_due(self, run: Run) -> bool:
        if self._steps:
            return run.state.step - self._saved_step >= self._steps
        if not self._seconds:
            return False
        by_time = time.monotonic() - self._saved_time >= self._seconds
        return bool(self._mode.workers.broadcast_tree_of_chief(np.int32(by_time)))

    def _save_and_notify(self, run: Run, position: Position | None) -> None:
        # The last checkpoint may be of a step for which listeners were called already.
        listeners_to_call = () if run.state.step == self._told_step else self._listeners
        stop_requested = save_and_notify_listeners(
            listeners_to_call,
            Session(run, self._events),
            lambda: self._folder.save_training_checkpoint(
                self._mode.to_user_state(run.state), position
            ),
        )
        self._told_step = run.state.step
        if self._mode.workers.broadcast_tree_of_chief(np.int32(stop_requested)):
            run.request_stop()
        self._saved_step, self._saved_time = run.state.step, time.monotonic()
