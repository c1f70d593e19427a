"""Finds and kills the processes below this one, on Linux also those in other sessions.

Elsewhere only the group of processes is known.
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
"""The time between two checks of a `StopWatch`."""
_MOST_STOPPED_TICKS = 8
STOPPED = (
    f"this instance was stopped (SIGSTOP) and did not go on for {_MOST_STOPPED_TICKS} seconds; "
    "it is ended, since the others would wait for it"
)
_IS_LINUX = sys.platform == "linux"
_others: set[int] = set()


def adopt_orphans() -> None:
    """Makes orphans below this process its children, instead of the system's.

    `kill_descendants` spares the processes that were started before this.
    """
    _others.update(_list_descendants(os.getpid()))
    _set_process_option(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Has the system kill this process when the one that started it ends."""
    _set_process_option(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def kill_descendants() -> None:
    """Kills all processes below this one that have been started since `adopt_orphans`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (living := _list_descendants(os.getpid())) and time.monotonic() < deadline:
        for process in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)  # the next round finds processes that were just starting


class StopWatch:
    """A detector of groups of processes that stand still as one of them was stopped.

    A process that computes, sleeps or waits is not stopped; nor is one that a debugger holds. It
    counts checks, and not seconds, as this process may have been stopped as well.

    Args:
      group: the number of the group.
    """

    def __init__(self, group: int):
        self._group, self._ticks = group, 0

    def check_has_stopped(self) -> bool:
        """Returns whether the group stands still, and did so at the last checks, too."""
        is_stopped = any(state == "T" for state in _states_of_group(self._group))
        self._ticks = self._ticks + 1 if is_stopped else 0
        return self._ticks >= _MOST_STOPPED_TICKS


def _states_of_group(group: int) -> list[str]:
    """Returns the states of the processes of a group, as Linux names them; none elsewhere."""
    if not _IS_LINUX:
        return []
    return [
        state
        for _, state, group_of_process in _read_process_table().values()
        if group_of_process == group
    ]


def _set_process_option(option: int, value: int) -> None:
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def _list_descendants(root: int) -> list[int]:
    """Returns the living processes whose ancestor is `root`."""
    if not _IS_LINUX:
        return []
    parents = _read_process_table()
    processes = [root]
    for process in processes:
        children = {child for child, (parent, *_) in parents.items() if parent == process}
        processes += children - _others
    return [process for process in processes[1:] if parents[process][1] not in "ZX"]


def _read_process_table() -> dict[int, tuple[int, str, int]]:
    """Returns the parent, state and group of each process of this machine."""
    table: dict[int, tuple[int, str, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
                table[int(name)] = int(parent), state.decode(), int(group)
    return table
