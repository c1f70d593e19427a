"""How a process ends whose peers may wait for it.

An interpreter that ends in its own time waits, in `jax.distributed`, until its peers end, too. That
is right for one that has done its part. One that has failed must not: its peers may wait for it in
a collective, for ever. So an exception, or a status that `sys.exit` is given, ends it at once.
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


class _Exit(SystemExit):
    """What `sys.exit` raises: no different, until the interpreter itself asks for the status."""

    @property
    def code(self) -> object:  # pyright: ignore[reportIncompatibleVariableOverride]
        status = self.args[0] if self.args else None
        if _is_asked_by_the_interpreter() and status not in (None, 0):
            if not isinstance(status, int):
                print(status, file=sys.stderr)
            _end(status if isinstance(status, int) else 1)
        return status


def leave_at_once_on_failure(verdict_seconds: float) -> None:
    """Has this process end at once when it fails.

    Args:
      verdict_seconds: how long one that has lost a peer waits for JAX to say which one, and to end
        it; 0 where a launcher says it.
    """
    _patience[0] = verdict_seconds
    sys.excepthook = _leave
    sys.exit = _exit


def _exit(status: object = None, /) -> NoReturn:
    raise _Exit(*(() if status is None else (status,)))


def _is_asked_by_the_interpreter() -> bool:
    """Whether no function of Python is running but the caller: the program is at its end."""
    return sys._getframe(1).f_back is None  # pyright: ignore[reportPrivateUsage]


def _leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    traceback.print_exception(kind, error, trace)
    if _LOST_PEER.search(str(error)):
        sys.stderr.flush()
        time.sleep(_patience[0])  # JAX ends this process with a message that names the peer
    _end(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _end(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)
