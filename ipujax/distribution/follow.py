"""Runs the command of one instance, and ends it when the launcher ends.

A launcher starts `python -m ipujax.distribution.follow NAME=VALUE ... -- COMMAND ...`, here or by
ssh, and holds its standard input. The first line there, JSON, holds more variables of the
environment: others on the machine can read arguments, not this. A later line, `INT` or `TERM`,
is that signal for the command and all that it has started; the end of the input kills them, and so
does the end of the command: what it leaves behind, be it in the background or in a session of its
own. So does a command that is stopped and does not go on, whose peers would wait for it. The exit
status is the command's, 128 + n for a signal n.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from ipujax.distribution import descendants


def main(arguments: Sequence[str]) -> int:
    """Runs a command with variables of the environment; returns its exit status."""
    descendants.adopt_orphans()
    separator = arguments.index("--")
    environment = dict(pair.split("=", 1) for pair in arguments[:separator])
    variables_json = sys.stdin.readline()
    if not variables_json:  # the launcher has ended already
        return 128 + signal.SIGKILL
    environment = json.loads(variables_json) | environment
    try:
        process = subprocess.Popen(
            arguments[separator + 1 :],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=descendants.die_with_parent,
        )
    except OSError as error:
        print(f"ipurun: {arguments[separator + 1]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_forward_signals, args=(sys.stdin, process), daemon=True).start()
    status = _wait_for_command(process)
    _kill_command(process)
    return status if status >= 0 else 128 - status


def _wait_for_command(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a command, or until it is stopped for longer than its peers wait."""
    watch = descendants.StopWatch(process.pid)
    while True:
        try:
            return process.wait(descendants.STOP_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            if watch.check_has_stopped():
                print(f"ipurun: {descendants.STOPPED}", file=sys.stderr)
                return -signal.SIGSTOP


def _forward_signals(signal_names: IO[str], process: subprocess.Popen[bytes]) -> None:
    """Forwards signals to the command; kills it when the launcher's input ends."""
    for line in signal_names:
        _signal_group(process, signal.Signals[f"SIG{line.strip()}"])
    _kill_command(process)


def _kill_command(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGKILL)
    descendants.kill_descendants()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the thread still reads standard input
