"""Hooks that stop a training, and one that records what the host does."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any

import numpy as np

from ipujax import host_trace
from ipujax.estimators.checks import check, check_number
from ipujax.estimators.hooks import Session, SessionRunContext, SessionRunHook, SessionRunValues
from ipujax.estimators.logging_hook import Timer
from ipujax.host import files
from ipujax.report.presentation.perfetto import host_events


@check.guard
class StopAtStepHook(SessionRunHook):
    """Stops after some number of steps, with the device loop in which it is reached.

    Args:
      num_steps: so many more than there are at the beginning.
      last_step: the global step; one of the two.

    Raises:
      EstimatorError: (a `ValueError`) both, or neither.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None):
        if (num_steps is None) == (last_step is None):
            raise check.refuse(
                "StopAtStepHook needs one of num_steps and last_step", "give one of them"
            )
        for name, value in {"num_steps": num_steps, "last_step": last_step}.items():
            if value is not None:
                check.integer(value, name, at_least=1)
        self._steps, self._last = num_steps, last_step
        self._stop = 0

    def after_create_session(self, session: Session, coord: None) -> None:
        """Counts from here."""
        self._stop = session.global_step + self._steps if self._steps else self._last or 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stops, if it is time."""
        if run_context.session.global_step >= self._stop:
            run_context.request_stop()


@check.guard
class EarlyStoppingHook(SessionRunHook):
    """Stops a training whose loss does not get better.

    Args:
      max_steps_without_decrease: of the mean loss of device loops.
      min_delta: by how much it must be less than the least one before.

    Raises:
      EstimatorError: (a `ValueError`) numbers that cannot be.
    """

    def __init__(self, max_steps_without_decrease: int, min_delta: float = 0.0):
        self._patience = check.integer(
            max_steps_without_decrease, "max_steps_without_decrease", at_least=1
        )
        self._delta = check_number(min_delta, "min_delta")
        self._best, self._since = math.inf, 0

    def after_create_session(self, session: Session, coord: None) -> None:
        """Counts from here."""
        self._best, self._since = math.inf, session.global_step

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stops, if it is time."""
        results: Any = run_values.results
        losses = results["loss"] if isinstance(results, dict) else results
        loss, step = float(np.mean(losses, dtype=np.float64)), run_context.session.global_step
        if loss < self._best - self._delta:
            self._best, self._since = loss, step
        elif step - self._since >= self._patience:
            run_context.request_stop()


@check.guard
class ProfilerHook(SessionRunHook):
    """Writes what the host did in a device loop, every so many steps or seconds.

    Each file, `timeline-<step>.json`, has what `ipu.host_trace` records as trace events, which
    Perfetto and Chrome show.

    Args:
      save_steps: between two of them.
      save_secs: the same; one of the two.
      output_dir: where.

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
            raise check.refuse("ProfilerHook needs one of save_steps and save_secs", "give one")
        if save_steps is not None:
            check.integer(save_steps, "save_steps", at_least=1)
        if save_secs is not None:
            check_number(save_secs, "save_secs", at_least=0)
        self._folder = os.fspath(check.path(output_dir, "output_dir"))
        self._timer = Timer(save_steps, save_secs)
        self._recording: contextlib.ExitStack | None = None
        self._trace: Any = None

    def before_run(self, run_context: SessionRunContext) -> None:
        """Records, if it is time."""
        if self._timer.is_due(run_context.session.global_step):
            self._recording = contextlib.ExitStack()
            self._trace = self._recording.enter_context(host_trace.record())

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes what was recorded."""
        if self._recording is None:
            return
        self._recording.close()
        self._recording = None
        step = run_context.session.global_step
        self._timer.done(step)
        text = json.dumps({"traceEvents": list(host_events(self._trace.spans, 1))})
        path = os.path.join(self._folder, f"timeline-{step}.json")
        try:
            os.makedirs(self._folder or os.curdir, exist_ok=True)
            files.write_text(path, text)
        except OSError as error:
            raise check.refuse(
                f"ProfilerHook cannot write {path}: {error.strerror}",
                "make room there, or give another output_dir",
            ) from error
