"""Runs the command of one instance, and ends it with the launcher, whatever becomes of that.

A launcher starts `python -m ipujax.distribution.follow NAME=VALUE ... -- COMMAND ...`, here or by
ssh, and holds its standard input. A line there, `INT` or `TERM`, is that signal for the command and
all that it has started; the end of the input kills them, and so does the end of the command: what
it leaves behind, be it in the background or in a session of its own. The exit status is the
command's, 128 + n for a signal n.
"""

from __future__ import annotations

import contextlib
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
    descendants.adopt()
    cut = arguments.index("--")
    environment = dict(pair.split("=", 1) for pair in arguments[:cut])
    try:
        process = subprocess.Popen(
            arguments[cut + 1 :],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=descendants.die_with_parent,
        )
    except OSError as error:
        print(f"ipurun: {arguments[cut + 1]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_obey, args=(sys.stdin, process), daemon=True).start()
    status = process.wait()
    _kill(process)
    return status if status >= 0 else 128 - status


def _obey(orders: IO[str], process: subprocess.Popen[bytes]) -> None:
    """Hands signals on; where nobody is left who could send one, all is over."""
    for line in orders:
        _signal(process, signal.Signals[f"SIG{line.strip()}"])
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGKILL)
    descendants.end()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the thread still reads standard input
