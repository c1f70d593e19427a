"""Ends a process at once when it fails, as its peers may wait for it.

At its normal end an interpreter waits, in `jax.distributed`, until its peers end, too. That is
right for one that has done its part. One that has failed must not: its peers may wait for it in a
collective, for ever. So an exception, or a failure status given to `sys.exit`, ends it at once.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from types import TracebackType
from typing import NoReturn

_LOST_PEER = re.compile(r"Gloo .* failed|onnection (closed|reset) by peer|coordination service")
_patience = [0.0]


class _ExitAtOnce(SystemExit):
    """The exception of `sys.exit`, whose failure status ends the process once Python reads it."""

    @property
    def code(self) -> object:  # pyright: ignore[reportIncompatibleVariableOverride]
        status = self.args[0] if self.args else None
        if _is_called_by_interpreter() and status not in (None, 0):
            if not isinstance(status, int):
                print(status, file=sys.stderr)
            _exit_process(status if isinstance(status, int) else 1)
        return status


def install_exit_on_failure(verdict_seconds: float) -> None:
    """Makes this process end at once when it fails.

    Args:
      verdict_seconds: how long a process that has lost a peer waits for JAX to name the peer and
        to end it; 0 where a launcher names the peer.
    """
    _patience[0] = verdict_seconds
    sys.excepthook = _exit_on_exception
    sys.exit = _raise_exit


def _raise_exit(status: object = None, /) -> NoReturn:
    raise _ExitAtOnce(*(() if status is None else (status,)))


def _is_called_by_interpreter() -> bool:
    """Returns whether only the caller is running, so that the program is at its end."""
    return sys._getframe(1).f_back is None  # pyright: ignore[reportPrivateUsage]


def _exit_on_exception(
    error_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    traceback.print_exception(error_type, error, trace)
    if _LOST_PEER.search(str(error)):
        sys.stderr.flush()
        time.sleep(_patience[0])  # JAX ends this process with a message that names the peer
    _exit_process(130 if issubclass(error_type, KeyboardInterrupt) else 1)


def _exit_process(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)
