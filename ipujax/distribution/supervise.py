"""Instances as processes: started together, listened to, ended together."""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from ipujax.distribution import descendants

LAST_LINES = 10
_TOGETHER_SECONDS = 0.3  # between endings whose order is not known
_CAUSE_SECONDS = 3.0  # between the ending of an instance that had lost a peer, and that peer's
_MANNERS_SECONDS = 3.0  # between SIGTERM, which a process may catch, and SIGKILL

_LOST_A_PEER = re.compile(
    rb"JAX distributed service detected fatal errors|Gloo .* failed|[Cc]onnection \w+ by peer"
)
"""What JAX and gloo write in a process whose peer has died."""

Show = Callable[[int, str, bytes], None]
"""Is given each line: of which instance, from `stdout` or `stderr`, and the line."""


@dc.dataclass(frozen=True)
class Ending:
    """How an instance has ended.

    Attributes:
      index: which.
      status: its exit status, 128 + n for signal n.
      last_lines: what it had written to standard error at the end, or else to standard output.
    """

    index: int
    status: int
    last_lines: tuple[str, ...]


class Interrupted(Exception):
    """Someone wants all of it to end.

    Attributes:
      number: the signal that said so.
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Instances:
    """Processes that run until all have ended well, or one has not.

    Used in a `with`, whose end leaves none of them.

    Args:
      commands: of each; see `follow`.
      greetings: the first lines of their standard inputs, where the commands read secrets.
      show: is given their lines, one at a time.
    """

    def __init__(self, commands: Sequence[Sequence[str]], greetings: Sequence[str], show: Show):
        self._commands, self._greetings, self._show = commands, greetings, show
        self._lock = threading.Lock()
        self._ended: queue.SimpleQueue[tuple[float, int, int] | int] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._have_lost_a_peer: set[int] = set()
        self._order = "TERM"
        self._lines = [
            collections.defaultdict[str, collections.deque[str]](_tail) for _ in commands
        ]

    def __enter__(self) -> Instances:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._ended.put(number))
        try:
            for index, command in enumerate(self._commands):
                self._start(index, command)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends those that still run."""
        for process in self._processes:
            if process.poll() is None and process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(f"{self._order}\n".encode())
                    process.stdin.flush()
        until = time.monotonic() + _MANNERS_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.01))
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()  # `follow` kills what is left
        for process in self._processes:
            try:
                process.wait(_MANNERS_SECONDS)
            except subprocess.TimeoutExpired:  # one that is stopped, or does not reach its machine
                process.kill()
                process.wait()
        descendants.end()  # those of a `follow` that was killed
        for thread in self._threads:
            thread.join(1.0)  # a process elsewhere may hold the pipe

    def wait(self) -> Ending | None:
        """Waits for the end of all; gives the first that has failed, as soon as it has.

        Raises:
          Interrupted: by SIGINT, SIGTERM or SIGHUP.
        """
        left = len(self._processes)
        while left:
            event = self._ended.get()
            if isinstance(event, int):
                self._order = "INT" if event == signal.SIGINT else "TERM"
                raise Interrupted(event)
            if event[2]:
                return self._first(event)
            left -= 1
        return None

    def _first(self, event: tuple[float, int, int]) -> Ending:
        """Of those that fail within moments, the cause: one that has not failed for want of others.

        A process that dies takes its peers along, and they may be noticed first.
        """
        failed = [event]
        started = time.monotonic()
        while True:
            ranked = sorted((each[1] in self._have_lost_a_peer, each) for each in failed)
            patience = _CAUSE_SECONDS if ranked[0][0] else _TOGETHER_SECONDS
            rest = started + patience - time.monotonic()
            if rest <= 0 or len(failed) == len(self._processes):
                break
            with contextlib.suppress(queue.Empty):
                other = self._ended.get(timeout=min(rest, _TOGETHER_SECONDS))
                if not isinstance(other, int) and other[2]:
                    failed.append(other)
        _, index, status = ranked[0][1]
        lines = self._lines[index]
        return Ending(index, status, tuple(lines["stderr"] or lines["stdout"]))

    def _start(self, index: int, command: Sequence[str]) -> None:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the launcher, which tells them
        )
        self._processes.append(process)
        for name in ("stdout", "stderr"):
            self._begin(self._listen, index, name, getattr(process, name))
        self._begin(self._attend, index, process)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed
                process.stdin.write(f"{self._greetings[index]}\n".encode())
                process.stdin.flush()

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _listen(self, index: int, name: str, stream: IO[bytes]) -> None:
        for line in stream:
            with self._lock:
                if name == "stderr" and _LOST_A_PEER.search(line):
                    self._have_lost_a_peer.add(index)
                self._lines[index][name].append(line.decode(errors="replace").rstrip("\n"))
                self._show(index, name, line)

    def _attend(self, index: int, process: subprocess.Popen[bytes]) -> None:
        status = self._wait_for(index, process)
        self._ended.put((time.monotonic(), index, status if status >= 0 else 128 - status))

    def _wait_for(self, index: int, process: subprocess.Popen[bytes]) -> int:
        """Waits for the end of a process, which it does not leave stopped; gives its status."""
        watch = descendants.StopWatch(process.pid)
        while True:
            try:
                return process.wait(descendants.STOP_TICK_SECONDS)
            except subprocess.TimeoutExpired:
                if watch.has_stopped():
                    with self._lock:
                        self._lines[index]["stderr"].append(f"ipurun: {descendants.STOPPED}")
                    process.kill()
                    process.wait()
                    return -signal.SIGSTOP


def _tail() -> collections.deque[str]:
    return collections.deque(maxlen=LAST_LINES)
