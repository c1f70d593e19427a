"""Hooks that an estimator tells of its device loops (seed 001, 18.12.4), and some to begin with."""

from __future__ import annotations

from ipujax.doors.estimators import session_run_hooks as _session_run_hooks

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


CheckpointSaverListener = _session_run_hooks.CheckpointSaverListener
EarlyStoppingHook = _session_run_hooks.EarlyStoppingHook
IPULoggingTensorHook = _session_run_hooks.IPULoggingTensorHook
ProfilerHook = _session_run_hooks.ProfilerHook
Session = _session_run_hooks.Session
SessionRunContext = _session_run_hooks.SessionRunContext
SessionRunHook = _session_run_hooks.SessionRunHook
SessionRunValues = _session_run_hooks.SessionRunValues
StopAtStepHook = _session_run_hooks.StopAtStepHook
