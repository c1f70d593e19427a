"""What people see of a training: lines of the log, a progress bar, event files for TensorBoard."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from ipujax.errors import NanLossDuringTrainingError
from ipujax.estimators.event_files import EventFile
from ipujax.estimators.mode import Mode
from ipujax.ipu_run_config import RunConfig
from ipujax.training import Callback, Run
from ipujax.training.progress import progress_bar
from ipujax.training.state import Tree


class Journal(Callback):
    """Tells loss and speed while a training runs.

    Args:
      mode: that trains.
      config: says how often.
      folder: of event files.

    Raises:
      NanLossDuringTrainingError: (a `ValueError`) after a device loop whose loss is not a number;
        its state is not saved.
    """

    def __init__(self, mode: Mode, config: RunConfig, folder: str):
        self._mode, self._every = mode, config.log_step_count_steps
        self._summaries, self._folder = config.save_summary_steps, folder
        self._events: EventFile | None = None
        self._bar: Any = None
        self._began = self._told = self._written = 0
        self._time = 0.0

    def begin(self, run: Run) -> None:
        """Counts from here."""
        self._began = self._told = self._written = run.state.step
        self._time = time.monotonic()
        self._events = EventFile(self._folder)
        if sys.stderr.isatty():
            total = None if run.steps is None else run.steps * self._mode.step_size
            self._bar = progress_bar(total, "training")

    def after_run(self, run: Run, results: Tree) -> None:
        """Tells what is to be told."""
        step, loss = run.state.step, self._mode.loss(results)
        if math.isnan(loss):
            raise NanLossDuringTrainingError(
                f"the loss is not a number in the device loop that ended with step {step}",
                fix="use a smaller learning rate, or look for the operation with "
                "IPUConfig.floating_point_behaviour",
            )
        is_first = self._told == self._began
        if self._every and (is_first or step - self._told >= self._every):
            speed = self._speed(step)
            logging.info("loss = %s, step = %d", np.float32(loss), step)
            if not is_first:
                logging.info("global_step/sec: %g", speed)
                self._event("global_step/sec", speed, step)
            self._told, self._time = step, time.monotonic()
            self._event("loss", loss, step)
        elif self._summaries and step - self._written >= self._summaries:
            self._event("loss", loss, step)
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            self._bar.update(step - self._began - self._bar.n)

    def end(self, run: Run) -> None:
        """Says how it ended."""
        if self._bar is not None:
            self._bar.close()
        if self._events is not None:
            self._events.close()

    def _speed(self, step: int) -> float:
        return (step - self._told) / max(time.monotonic() - self._time, 1e-9)

    def _event(self, name: str, value: float, step: int) -> None:
        if self._events is not None:
            self._events.scalar(name, value, step)
            self._written = step


def write_scores(folder: str, values: Mapping[str, Any], step: int) -> None:
    """Says and writes what an evaluation gave."""
    shown = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
    logging.info("Saving dict for global step %d: %s", step, shown)
    events = EventFile(folder)
    for name, value in values.items():
        if np.ndim(value) == 0 and name != "global_step":
            events.scalar(name, float(value), step)
    events.close()
