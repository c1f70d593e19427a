"""All that a process has started, whoever started it, and wherever that has hidden itself.

On Linux. Elsewhere there is the group of processes alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
_PATIENCE_SECONDS = 2.0
_IS_LINUX = sys.platform == "linux"
_others: set[int] = set()


def adopt() -> None:
    """Has orphans below this process be its children, and not those of the system.

    What it has started before this is none of `end`'s concern.
    """
    _others.update(_below(os.getpid()))
    _control(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Has this process be killed when the one that started it ends."""
    _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def end() -> None:
    """Kills all processes below this one that have been started since `adopt`."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while (alive := _below(os.getpid())) and time.monotonic() < until:
        for process in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)  # those that were being started are found in the next round


def _control(what: int, value: int) -> None:
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(what, int(value), 0, 0, 0)


def _below(root: int) -> list[int]:
    """Living processes whose ancestor is `root`."""
    if not _IS_LINUX:
        return []
    parents = _parents()
    found = [root]
    for process in found:
        children = {child for child, (parent, _) in parents.items() if parent == process}
        found += children - _others
    return [process for process in found[1:] if parents[process][1] not in "ZX"]


def _parents() -> dict[int, tuple[int, str]]:
    """Of each process of this machine its parent and its state."""
    table: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                table[int(name)] = int(parent), state.decode()
    return table
