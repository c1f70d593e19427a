"""Reads changed files, each with a number; in a child process, as some may end it."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from tests.file_fuzz.readers import reader as reader_of
from tests.file_fuzz.readers.reader import Files, Reader, write_files
from tests.file_fuzz.watch import watching

_ROOM = 4 * 2**30  # bytes of addresses that a reader may take beside what the process has
_STUCK = 120.0  # seconds without a word, after which a child does not come back
_REFUSED, _READ = "refused", "read"


@dc.dataclass(frozen=True)
class Outcome:
    """What came of one changed file.

    Attributes:
      number: of the change.
      kind: `refused`, `read`, or a word for what is wrong.
      message: what is wrong.
    """

    number: int
    kind: str
    message: str = ""

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return self.kind in (_REFUSED, _READ)


def make_files(reader: Reader, seed: int, number: int) -> tuple[str, Files]:
    """The changed files of a number, and the name of the sample that they were."""
    rng = random.Random(f"{reader.name}-{seed}-{number}")
    samples = reader.samples()
    name = rng.choice(sorted(samples))
    with _deep():
        return name, reader.change(samples[name], rng)


@contextlib.contextmanager
def _deep() -> Generator[None]:
    """Lets the fuzzer itself nest deeper than readers can."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def check(reader: Reader, seed: int, number: int) -> Outcome:
    """Reads the files of a number in this process."""
    _, files = make_files(reader, seed, number)
    folder = Path(tempfile.mkdtemp(prefix="file-fuzz-"))
    try:
        write_files(files, folder)
        return _read(reader, folder, number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(reader: Reader, folder: Path, number: int) -> Outcome:
    kind, message = _READ, ""
    with watching(folder, reader.seconds) as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wrong = reader.read(folder)
            kind, message = ("wrong", wrong) if wrong else (_READ, "")
        except reader.errors:
            kind = _REFUSED
        except Exception as error:
            kind = f"bare {type(error).__name__}"
            message = "".join(traceback.format_exception(error, limit=-6))[-2500:]
    if found:
        return Outcome(number, found[0].partition(" ")[0], "; ".join(found) + f"\n{message}")
    return Outcome(number, kind, message)


def read_samples(reader: Reader) -> None:
    """Reads the good files, so that later ones find imported what is needed.

    Raises:
      AssertionError: a good file is not read as it should be.
    """
    for name, files in reader.samples().items():
        with tempfile.TemporaryDirectory() as folder:
            write_files(files, Path(folder))
            wrong = reader.read(Path(folder))
            assert wrong is None, f"{name}: {wrong}"


def child(name: str, seed: int, numbers: Sequence[int]) -> None:
    """Reads changed files and prints a line for each: its number, its kind, and its message."""
    reader = reader_of(name)
    read_samples(reader)
    _limit_memory()
    for number in numbers:
        print(f"begin {number}", flush=True)
        outcome = check(reader, seed, number)
        print(f"end {json.dumps(dc.astuple(outcome))}", flush=True)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def outcomes(name: str, seed: int, first: int, count: int) -> Iterator[Outcome]:
    """What comes of so many changed files, from children: a new one after each that ends."""
    number, last = first, first + count
    while number < last:
        for outcome in _from_child(name, seed, number, last):
            yield outcome
            number = outcome.number + 1


def _from_child(name: str, seed: int, first: int, last: int) -> Iterator[Outcome]:
    command = [sys.executable, "-m", "tests.file_fuzz", "--child", "--reader", name]
    command += ["--seed", str(seed), "--first", str(first), "--count", str(last - first)]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        # XLA's cache of kernels would be written where no reader may write.
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        watch = _Watchdog(process)
        begun: int | None = None
        assert process.stdout is not None
        for line in process.stdout:
            watch.restart()
            word, _, rest = line.partition(" ")
            if word == "begin":
                begun = int(rest)
            elif word == "end":
                begun = None
                yield Outcome(*json.loads(rest))
        watch.stop()
        process.stdout.close()
        code = process.wait()
        errors.seek(0)
        said = errors.read()[-2500:]
    if begun is not None:
        kind = "hang" if watch.has_killed else "death"
        yield Outcome(begun, kind, f"the process ended with {code}\n{said}")
    elif code:
        raise RuntimeError(f"the child of {name} ended with {code} before a change:\n{said}")


class _Watchdog:
    """Kills a process that says nothing for long."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process
        self.has_killed = False
        self._timer = threading.Timer(0, self._kill)
        self.restart()

    def restart(self) -> None:
        self._timer.cancel()
        self._timer = threading.Timer(_STUCK, self._kill)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()

    def _kill(self) -> None:
        self.has_killed = True
        self._process.kill()
