"""A hook that logs arrays which a `model_fn` hands to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import logging

from ipujax.doors.estimators.estimator_checks import check, check_number
from ipujax.doors.estimators.session_hooks import (
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from ipujax.ground import FailedPreconditionError
from ipujax.host import IPUOutfeedMode, IPUOutfeedQueue, trace_frames
from ipujax.operators import current_device
from ipujax.system import SYSTEM, share_absl_format


class IntervalTimer:
    """A timer that is due every so many steps, or every so many seconds.

    Args:
      every_steps: the steps between two times; None to count seconds.
      every_secs: the seconds between two times; with neither the timer is never due.
    """

    def __init__(self, every_steps: int | None, every_secs: float | None):
        self._every_steps, self._every_secs = every_steps, every_secs
        self._last: tuple[int, float] | None = None

    def is_due(self, step: int) -> bool:
        """Returns whether the timer is due in a step: at first always, and once in a step."""
        if self._every_steps is None and self._every_secs is None:
            return False
        if self._last is None:
            return True
        last_step, last_time = self._last
        if step == last_step:
            return False
        if self._every_secs is not None:
            return time.time() >= last_time + self._every_secs
        return step >= last_step + (self._every_steps or 1)

    def mark_done(self, step: int) -> float | None:
        """Notes that the action was done; returns the seconds since the last time."""
        time_now = time.time()
        elapsed = None if self._last is None else time_now - self._last[1]
        self._last = step, time_now
        return elapsed

    def forget_last_time(self) -> None:
        """Forgets when the action was done last."""
        self._last = None


@check.guard
class IPULoggingTensorHook(SessionRunHook):
    """A hook that logs arrays every N device loops, every N seconds, or at the end.

    `log` is called in a `model_fn`, or in other compiled code, and sends the arrays through an
    outfeed; absl logs them with INFO severity (seed 001, 18.12.4).

    Args:
      every_n_iter: the number of session runs, which are device loops, between two logs.
      every_n_secs: the seconds between two logs. One of the two, or `at_end`, is needed.
      at_end: whether to log the values that are left at the end.
      formatter: takes a dict from names to NumPy arrays, gives the text; None for `name = value`.
      logging_mode: LAST logs the last values since the last log, ALL all of them.
      feed_name: deprecated; queues have names of their own.
      replication_factor: deprecated; it follows from the program.

    Raises:
      EstimatorError: (a `ValueError`) both intervals, or nothing to log by.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ):
        if every_n_iter is not None and every_n_secs is not None:
            raise check.value_error(
                "both every_n_iter and every_n_secs are given", "give one of them"
            )
        if every_n_iter is None and every_n_secs is None and not at_end:
            raise check.value_error(
                "a logging hook has none of every_n_iter, every_n_secs and at_end",
                "say when it is to log",
            )
        if every_n_iter is not None:
            check.require_integer(every_n_iter, "every_n_iter", at_least=1)
        if every_n_secs is not None:
            check_number(every_n_secs, "every_n_secs", at_least=0)
        check.require_flag(at_end, "at_end")
        check.require_function(formatter, "the formatter", optional=True)
        check.require_instance(logging_mode, IPUOutfeedMode, "logging_mode")
        self._timer = IntervalTimer(every_n_iter, every_n_secs)
        self._at_end, self._formatter, self._mode = at_end, formatter, logging_mode
        self._feed_name, self._replication_factor = feed_name, replication_factor
        self._outfeed: IPUOutfeedQueue | None = None
        self._runs = 0

    def log(self, tensors: object) -> None:
        """Sends arrays to be logged; is called once in a trace.

        Args:
          tensors: a dict from names to arrays, a list of arrays or one; the names then are
            `tensor_0`, `tensor_1`...

        Raises:
          RuntimeError: `log` was called in this trace already.
          EstimatorTypeError: (a `TypeError`) something that is no array.
        """
        if not isinstance(tensors, dict):
            entries = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
            tensors = {f"tensor_{number}": entry for number, entry in enumerate(entries)}
        for name, value in tensors.items():
            check.require_instance(
                value, (jax.Array, np.ndarray, np.generic), f"`{name}`", "an array"
            )
        outfeed = self._find_or_make_outfeed()
        if outfeed.enqueued and trace_frames.current_trace_frame() is not None:
            raise FailedPreconditionError(
                "log was called twice on one hook in one traced function",
                fix="log all arrays in one call, as a dict or a list, or make another hook",
            )
        outfeed.enqueue(tensors)

    def begin(self) -> None:
        """Checks that there are arrays to log, and starts to count."""
        if self._outfeed is None:
            raise FailedPreconditionError(
                "a logging hook was given nothing to log", fix="call its log in model_fn"
            )
        self._runs = 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs the arrays if the timer is due."""
        if self._timer.is_due(self._runs):
            self._log_values()
        self._runs += 1

    def end(self, session: Session) -> None:
        """Logs the remaining arrays, if `at_end` is set."""
        if self._at_end:
            self._log_values()
        self._timer.forget_last_time()

    def _find_or_make_outfeed(self) -> IPUOutfeedQueue:
        """Returns the outfeed on the device for which a function is being traced."""
        device = current_device()
        ordinal = 0 if device is None else SYSTEM.device(device).ordinal
        if self._outfeed is None or self._outfeed.device_ordinal != ordinal:
            self._outfeed = IPUOutfeedQueue(
                self._feed_name, self._mode, ordinal, self._replication_factor
            )
        return self._outfeed

    def _log_values(self) -> None:
        values: dict[str, Any] = self._find_outfeed().dequeue()
        share_absl_format()
        elapsed = self._timer.mark_done(self._runs)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                logging.info("%s", self._formatter(values))
                return
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
        logging.info("%s%s", text, "" if elapsed is None else f" ({elapsed:.3f} sec)")

    def _find_outfeed(self) -> IPUOutfeedQueue:
        if self._outfeed is None:
            raise FailedPreconditionError(
                "a logging hook was given nothing to log", fix="call its log in model_fn"
            )
        return self._outfeed
