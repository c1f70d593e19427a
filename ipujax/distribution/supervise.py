"""Starts the instances' processes, forwards their output, and ends them together."""

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
_TOGETHER_SECONDS = 0.3  # between ends whose order is unknown
_CAUSE_SECONDS = 3.0  # between the ends of an instance that had lost a peer, and of that peer
_MANNERS_SECONDS = 3.0  # between SIGTERM, which a process may catch, and SIGKILL

_LOST_A_PEER = re.compile(
    rb"JAX distributed service detected fatal errors|Gloo .* failed|[Cc]onnection \w+ by peer"
)
"""The messages of JAX and gloo in a process whose peer has died."""

Show = Callable[[int, str, bytes], None]
"""Shows a line, given the instance's index, `stdout` or `stderr`, and the line."""


@dc.dataclass(frozen=True)
class Ending:
    """The end of an instance: its exit status and last lines of output.

    Attributes:
      index: the index of the instance.
      status: its exit status, 128 + n for signal n.
      last_lines: its last lines on standard error, or else on standard output.
    """

    index: int
    status: int
    last_lines: tuple[str, ...]


class Interrupted(Exception):
    """An exception that says that a signal asks for the end of all instances.

    Attributes:
      number: the number of the signal.
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Instances:
    """Processes that run until all have succeeded, or one has failed.

    Used in a `with`, whose end kills those that still run.

    Args:
      commands: the command of each; see `follow`.
      greetings: the first lines of their standard inputs, where the commands read secrets.
      show: called with each of their lines.
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
            collections.defaultdict[str, collections.deque[str]](_make_line_buffer)
            for _ in commands
        ]

    def __enter__(self) -> Instances:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._ended.put(number))
        try:
            for index, command in enumerate(self._commands):
                self._start_instance(index, command)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes that still run."""
        for process in self._processes:
            if process.poll() is None and process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(f"{self._order}\n".encode())
                    process.stdin.flush()
        deadline = time.monotonic() + _MANNERS_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.01))
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()  # `follow` kills the remaining processes
        for process in self._processes:
            try:
                process.wait(_MANNERS_SECONDS)
            except subprocess.TimeoutExpired:  # it is stopped, or its machine cannot be reached
                process.kill()
                process.wait()
        descendants.kill_descendants()  # the descendants of a `follow` that was killed
        for thread in self._threads:
            thread.join(1.0)  # a process elsewhere may hold the pipe

    def wait_for_first_failure(self) -> Ending | None:
        """Waits for the end of all; returns the first that has failed, as soon as it has.

        Raises:
          Interrupted: by SIGINT, SIGTERM or SIGHUP.
        """
        running = len(self._processes)
        while running:
            event = self._ended.get()
            if isinstance(event, int):
                self._order = "INT" if event == signal.SIGINT else "TERM"
                raise Interrupted(event)
            if event[2]:
                return self._find_cause_of_failures(event)
            running -= 1
        return None

    def _find_cause_of_failures(self, event: tuple[float, int, int]) -> Ending:
        """Returns the cause of failures within moments: one that has not lost a peer.

        A process that dies makes its peers fail, and their ends may be noticed first.
        """
        failures = [event]
        start_time = time.monotonic()
        while True:
            ranked = sorted((failure[1] in self._have_lost_a_peer, failure) for failure in failures)
            patience = _CAUSE_SECONDS if ranked[0][0] else _TOGETHER_SECONDS
            remaining_seconds = start_time + patience - time.monotonic()
            if remaining_seconds <= 0 or len(failures) == len(self._processes):
                break
            with contextlib.suppress(queue.Empty):
                next_event = self._ended.get(timeout=min(remaining_seconds, _TOGETHER_SECONDS))
                if not isinstance(next_event, int) and next_event[2]:
                    failures.append(next_event)
        _, index, status = ranked[0][1]
        lines = self._lines[index]
        return Ending(index, status, tuple(lines["stderr"] or lines["stdout"]))

    def _start_instance(self, index: int, command: Sequence[str]) -> None:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the launcher only, which forwards it
        )
        self._processes.append(process)
        for name in ("stdout", "stderr"):
            self._start_thread(self._read_output, index, name, getattr(process, name))
        self._start_thread(self._report_end, index, process)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which `_report_end` reports
                process.stdin.write(f"{self._greetings[index]}\n".encode())
                process.stdin.flush()

    def _start_thread(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _read_output(self, index: int, name: str, stream: IO[bytes]) -> None:
        for line in stream:
            with self._lock:
                if name == "stderr" and _LOST_A_PEER.search(line):
                    self._have_lost_a_peer.add(index)
                self._lines[index][name].append(line.decode(errors="replace").rstrip("\n"))
                self._show(index, name, line)

    def _report_end(self, index: int, process: subprocess.Popen[bytes]) -> None:
        status = self._wait_for_process(index, process)
        self._ended.put((time.monotonic(), index, status if status >= 0 else 128 - status))

    def _wait_for_process(self, index: int, process: subprocess.Popen[bytes]) -> int:
        """Waits for the end of a process, kills it if it stays stopped; returns its status."""
        watch = descendants.StopWatch(process.pid)
        while True:
            try:
                return process.wait(descendants.STOP_TICK_SECONDS)
            except subprocess.TimeoutExpired:
                if watch.check_has_stopped():
                    with self._lock:
                        self._lines[index]["stderr"].append(f"ipurun: {descendants.STOPPED}")
                    process.kill()
                    process.wait()
                    return -signal.SIGSTOP


def _make_line_buffer() -> collections.deque[str]:
    return collections.deque(maxlen=LAST_LINES)
