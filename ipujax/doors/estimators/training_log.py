"""The visible progress of a training: log lines, a progress bar, event files for TensorBoard."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from absl import logging

from ipujax.doors.estimators.estimator_mode import EstimatorMode
from ipujax.doors.estimators.event_files import EventFile
from ipujax.doors.estimators.ipu_run_config import RunConfig
from ipujax.ground import NanLossDuringTrainingError
from ipujax.system import share_absl_format
from ipujax.training import Callback, ProgressBar, Run, TrainState, Tree, progress_bar


class TrainingLog(Callback):
    """A callback that reports loss and speed of a training; closed by a `with` block.

    Args:
      mode: the mode that trains.
      config: the `RunConfig` with the numbers of steps between reports.
      events: the event file of the curves.
      element: the first element of the data set; the first axis of its first array counts examples.

    Raises:
      NanLossDuringTrainingError: (a `ValueError`) after a device loop whose loss is not a number;
        its state is not saved.
    """

    def __init__(self, mode: EstimatorMode, config: RunConfig, events: EventFile, element: Tree):
        self._mode, self._every = mode, config.log_step_count_steps
        self._summaries, self._events = config.save_summary_steps, events
        self._compile_summary = config.ipu_run_config.compile_summary
        self._examples = next((x.shape[0] for x in jax.tree.leaves(element) if np.ndim(x)), 1)
        self._bar: ProgressBar | None = None
        self._began = self._told = self._written = self._shown = 0
        self._begun_at = self._told_at = 0.0

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, run: Run) -> None:
        """Starts to count steps and time."""
        share_absl_format()
        self._began = self._told = self._written = self._shown = run.state.step
        self._begun_at = self._told_at = time.monotonic()
        program = self._mode.loop.executable
        if self._compile_summary and program is not None:
            self._events.write_text_event("compile_summary", str(program.report()), run.state.step)
        if sys.stderr.isatty():
            total = None if run.steps is None else run.steps * self._mode.step_size
            self._bar = progress_bar(total, "training")

    def after_run(self, run: Run, results: Tree) -> None:
        """Logs loss and speed if due, and raises if the loss is not a number."""
        step, loss = run.state.step, self._mode.mean_loss(results)
        if math.isnan(loss):
            raise NanLossDuringTrainingError(
                f"the loss is not a number in the device loop that ended with step {step}",
                fix="use a smaller learning rate, or look for the operation with "
                "IPUConfig.floating_point_behaviour",
            )
        is_first = self._told == self._began
        if self._every and (is_first or step - self._told >= self._every):
            time_now = time.monotonic()
            loss = self._mode.workers.average_value(loss)
            logging.info("loss = %s, step = %d", np.float32(loss), step)
            if not is_first:
                speed = (step - self._told) / max(time_now - self._told_at, 1e-9)
                logging.info("global_step/sec: %g", speed)
                self._events.write_scalar("global_step/sec", speed, step)
            self._told, self._told_at = step, time_now
            self._write_curves(run.state, loss)
        elif self._summaries and step - self._written >= self._summaries:
            self._write_curves(run.state, self._mode.workers.average_value(loss))
        if self._bar is not None:
            num_examples = (step - self._began) * self._examples * run.replicas
            speed = num_examples / max(time.monotonic() - self._begun_at, 1e-9)
            self._bar.set_postfix_str(f"loss {loss:.4g}, {speed:,.0f} examples/s", refresh=False)
            self._bar.update(step - self._shown)
            self._shown = step

    def _write_curves(self, state: TrainState, loss: float) -> None:
        self._written = state.step
        self._events.write_scalar("loss", loss, state.step)
        rate = find_learning_rate(state.optimizer_state)
        if rate is not None:
            self._events.write_scalar("learning_rate", rate, state.step)


def find_learning_rate(optimizer_state: Tree) -> float | None:
    """Returns the learning rate if `optax.inject_hyperparams` keeps it in the state, or None."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(optimizer_state):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith("/learning_rate"):
            return float(leaf)
    return None


def write_scores(events: EventFile, values: Mapping[str, Any], step: int) -> None:
    """Logs the values of an evaluation, and writes them to its event file."""
    share_absl_format()
    values_text = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
    logging.info("Saving dict for global step %d: %s", step, values_text)
    for name, value in values.items():
        if np.ndim(value) == 0 and name != "global_step":
            events.write_scalar(name, float(value), step)
