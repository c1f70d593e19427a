"""Hooks that an estimator tells of its device loops (seed 001, 18.12.4), and some to begin with."""

from ipujax.doors.estimators.logging_hook import IPULoggingTensorHook as IPULoggingTensorHook
from ipujax.doors.estimators.saver_listeners import (
    CheckpointSaverListener as CheckpointSaverListener,
)
from ipujax.doors.estimators.session_hooks import Session as Session
from ipujax.doors.estimators.session_hooks import SessionRunContext as SessionRunContext
from ipujax.doors.estimators.session_hooks import SessionRunHook as SessionRunHook
from ipujax.doors.estimators.session_hooks import SessionRunValues as SessionRunValues
from ipujax.doors.estimators.stop_and_profiler_hooks import EarlyStoppingHook as EarlyStoppingHook
from ipujax.doors.estimators.stop_and_profiler_hooks import ProfilerHook as ProfilerHook
from ipujax.doors.estimators.stop_and_profiler_hooks import StopAtStepHook as StopAtStepHook

__all__ = [
    "CheckpointSaverListener",
    "EarlyStoppingHook",
    "IPULoggingTensorHook",
    "ProfilerHook",
    "Session",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StopAtStepHook",
]


def __dir__() -> list[str]:
    return __all__
