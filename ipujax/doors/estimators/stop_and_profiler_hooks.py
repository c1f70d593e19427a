"""Hooks that stop a training, and a hook that records the work of the host."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any

import numpy as np

from ipujax.doors.estimators.estimator_checks import check, check_number
from ipujax.doors.estimators.logging_hook import IntervalTimer
from ipujax.doors.estimators.session_hooks import (
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from ipujax.ground import files, host_trace
from ipujax.report import list_host_span_events


@check.guard
class StopAtStepHook(SessionRunHook):
    """A hook that stops a training after a number of steps, at the end of a device loop.

    Args:
      num_steps: the steps from the beginning.
      last_step: the global step to stop at; one of the two is needed.

    Raises:
      EstimatorError: (a `ValueError`) both are given, or neither.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None):
        if (num_steps is None) == (last_step is None):
            raise check.value_error(
                "StopAtStepHook needs one of num_steps and last_step", "give one of them"
            )
        for name, value in {"num_steps": num_steps, "last_step": last_step}.items():
            if value is not None:
                check.require_integer(value, name, at_least=1)
        self._steps, self._last = num_steps, last_step
        self._stop = 0

    def after_create_session(self, session: Session, coord: None) -> None:
        """Starts to count steps."""
        self._stop = session.global_step + self._steps if self._steps else self._last or 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stops the training if the step is reached."""
        if run_context.session.global_step >= self._stop:
            run_context.request_stop()


@check.guard
class EarlyStoppingHook(SessionRunHook):
    """A hook that stops a training whose loss does not improve.

    Args:
      max_steps_without_decrease: the steps without a decrease of the mean loss of device loops.
      min_delta: the decrease of the smallest loss that counts as an improvement.

    Raises:
      EstimatorError: (a `ValueError`) a number out of range.
    """

    def __init__(self, max_steps_without_decrease: int, min_delta: float = 0.0):
        self._patience = check.require_integer(
            max_steps_without_decrease, "max_steps_without_decrease", at_least=1
        )
        self._delta = check_number(min_delta, "min_delta")
        self._best, self._since = math.inf, 0

    def after_create_session(self, session: Session, coord: None) -> None:
        """Starts to count steps."""
        self._best, self._since = math.inf, session.global_step

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stops the training if its loss did not improve for long enough."""
        results: Any = run_values.results
        losses = results["loss"] if isinstance(results, dict) else results
        loss, step = float(np.mean(losses, dtype=np.float64)), run_context.session.global_step
        if loss < self._best - self._delta:
            self._best, self._since = loss, step
        elif step - self._since >= self._patience:
            run_context.request_stop()


@check.guard
class ProfilerHook(SessionRunHook):
    """A hook that writes the host's work in a device loop, every so many steps or seconds.

    Each file, `timeline-<step>.json`, has the events that `ipu.host_trace` records, which Perfetto
    and Chrome show.

    Args:
      save_steps: the steps between two files.
      save_secs: the seconds between two files; one of the two is needed.
      output_dir: the folder of the files.

    Raises:
      EstimatorError: (a `ValueError`) both, or neither.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: files.StrPath = "",
    ):
        if (save_steps is None) == (save_secs is None):
            raise check.value_error(
                "ProfilerHook needs one of save_steps and save_secs", "give one"
            )
        if save_steps is not None:
            check.require_integer(save_steps, "save_steps", at_least=1)
        if save_secs is not None:
            check_number(save_secs, "save_secs", at_least=0)
        self._folder = os.fspath(check.require_path(output_dir, "output_dir"))
        self._timer = IntervalTimer(save_steps, save_secs)
        self._recording: contextlib.ExitStack | None = None
        self._trace: Any = None

    def before_run(self, run_context: SessionRunContext) -> None:
        """Starts to record if the timer is due."""
        if self._timer.is_due(run_context.session.global_step):
            self._recording = contextlib.ExitStack()
            self._trace = self._recording.enter_context(host_trace.record())

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the recorded events."""
        if self._recording is None:
            return
        self._recording.close()
        self._recording = None
        step = run_context.session.global_step
        self._timer.mark_done(step)
        text = json.dumps({"traceEvents": list(list_host_span_events(self._trace.spans, 1))})
        path = os.path.join(self._folder, f"timeline-{step}.json")
        try:
            os.makedirs(self._folder or os.curdir, exist_ok=True)
            files.write_text(path, text)
        except OSError as error:
            raise check.value_error(
                f"ProfilerHook cannot write {path}: {error.strerror}",
                "make room there, or give another output_dir",
            ) from error
