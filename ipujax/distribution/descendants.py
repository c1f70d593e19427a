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
STOP_TICK_SECONDS = 1.0
"""Between two looks of a `StopWatch`."""
_MOST_STOPPED_TICKS = 8
STOPPED = (
    f"this instance was stopped (SIGSTOP) and did not go on for {_MOST_STOPPED_TICKS} seconds; "
    "it is ended, since the others would wait for it"
)
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


class StopWatch:
    """Tells whether a group of processes stands still because somebody has stopped one of them.

    A process that computes, sleeps or waits is not stopped; nor is one that a debugger holds. Looks
    are counted, and not seconds: whoever looks may have been stopped as well.

    Args:
      group: the number of the group.
    """

    def __init__(self, group: int):
        self._group, self._ticks = group, 0

    def has_stopped(self) -> bool:
        """Whether it stands still, and did so at the last looks, a tick apart, as well."""
        is_stopped = any(state == "T" for state in _states_of_group(self._group))
        self._ticks = self._ticks + 1 if is_stopped else 0
        return self._ticks >= _MOST_STOPPED_TICKS


def _states_of_group(group: int) -> list[str]:
    """The states of the processes of a group, as Linux names them; none elsewhere."""
    if not _IS_LINUX:
        return []
    return [state for _, state, of in _processes().values() if of == group]


def _control(what: int, value: int) -> None:
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(what, int(value), 0, 0, 0)


def _below(root: int) -> list[int]:
    """Living processes whose ancestor is `root`."""
    if not _IS_LINUX:
        return []
    parents = _processes()
    found = [root]
    for process in found:
        children = {child for child, (parent, *_) in parents.items() if parent == process}
        found += children - _others
    return [process for process in found[1:] if parents[process][1] not in "ZX"]


def _processes() -> dict[int, tuple[int, str, int]]:
    """Of each process of this machine its parent, its state and its group."""
    table: dict[int, tuple[int, str, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
                table[int(name)] = int(parent), state.decode(), int(group)
    return table
