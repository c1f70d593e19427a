"""Reports that are written while programs compile, as `autoReport` of the engine's options asks.

Every program that compiles gets a folder of its own, named by date, time, process and program; the
marker of `host.files` in it says that all of its files were written.
Wrong options are errors; a report that cannot be made or written is a warning, because a run must
not end for what was only meant to watch it.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import datetime
import difflib
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ipujax import events
from ipujax.errors import ConfigError
from ipujax.host import files
from ipujax.system import log
from ipujax.system.poplar_options import EngineOptions

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from lowering import ir

_PREFIX = "autoReport."
_ALL = "autoReport.all"
_DIRECTORY = "autoReport.directory"

# Which files an option asks for.
_FILES = {
    "autoReport.outputGraphProfile": ("report.html", "report.json", "report.txt"),
    "autoReport.outputExecutionProfile": ("trace.json.gz",),
    "autoReport.outputLoweredVars": ("report.json",),
    "autoReport.outputSerializedGraph": ("program.txt",),
}
# Options of the original that change nothing here, and why.
_NEEDLESS = {
    "autoReport.outputDebugInfo": "reports always name the lines of the source",
    "autoReport.outputArchive": "there is no archive of binaries for tiles",
    "autoReport.streamAtEachRun": "a report is modelled before the first run",
    "autoReport.executionProfileProgramRunCount": "a report is about one modelled call",
}
_KNOWN = (_ALL, _DIRECTORY, *_FILES, *_NEEDLESS)

_LONG_SECONDS = 3.0  # after which whoever waits is told for what
_TRACE_STEPS = 200_000  # more than a screen can show; some seconds to write, a few MB
_NAME_BYTES = 80  # of a program in the name of a folder; names may have 255

_lock = threading.Lock()
_written: set[tuple[AutoReport, str, str]] = set()


@dc.dataclass(frozen=True)
class AutoReport:
    """What is to be written, and where.

    Attributes:
      directory: in which every program gets a folder.
      files: names in that folder; none if nothing is asked for.
    """

    directory: Path
    files: frozenset[str]


def asked_for(options: EngineOptions) -> AutoReport:
    """What the engine's options ask for.

    Raises:
      ConfigError: (a `ValueError`) an unknown option that begins with `autoReport`, or a value
        that an option does not take.
    """
    for name in options.names:
        if name.lower().startswith(_PREFIX.lower()) and name not in _KNOWN:
            raise ConfigError(f"{options.where(name)} is unknown; {_hint(name)}")
    everything = options.is_true(_ALL, default=False)
    chosen = (name for name in _FILES if options.is_true(name, default=everything))
    files = frozenset(file for name in chosen for file in _FILES[name])
    for name, why in _NEEDLESS.items():
        if name in options.names:
            _warn(f"{options.where(name)} changes nothing: {why}")
    directory = options.get(_DIRECTORY, "")
    if not isinstance(directory, str) or "\0" in directory:
        raise ConfigError(f"{options.where(_DIRECTORY)} is {directory!r}, but must be a path")
    if directory and not files:
        _warn(f'{options.where(_DIRECTORY)} is set, but no report is asked for: set {_ALL} "true"')
    return AutoReport(Path(directory).expanduser().absolute(), files)


def _hint(name: str) -> str:
    shorts = {known.removeprefix(_PREFIX).lower(): known for known in _KNOWN}
    close = difflib.get_close_matches(name[len(_PREFIX) :].lower(), shorts, n=1)
    return f"did you mean {shorts[close[0]]!r}?" if close else f"there are {', '.join(_KNOWN)}"


class Reportable(Protocol):
    """A program that reports can be made of."""

    @property
    def program(self) -> ir.Program:
        """The Program for all IPUs."""
        ...

    def fingerprint(self) -> str:
        """A text that tells it from all other programs."""
        ...

    def report(self) -> Report:
        """What it would cost."""
        ...

    def as_text(self, *, origins: bool = False) -> str:
        """The Program, one step per line."""
        ...


def write(lowered: Reportable, options: EngineOptions) -> None:
    """Writes what the options ask for about a program that is going to be compiled, once.

    A directory that cannot be made, or written to, is a warning: the run can do without.

    Raises:
      ConfigError: (a `ValueError`) wrong options.
    """
    wanted = asked_for(options)
    if not wanted.files:
        return
    try:
        wanted.directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        _warn(
            f"{options.where(_DIRECTORY)}: the directory {str(wanted.directory)!r} cannot be made, "
            f"and the run goes on without reports: {problem.strerror}; name another one"
        )
        return
    name = lowered.program.name
    key = (wanted, name, lowered.fingerprint())
    with _lock:
        if key in _written:
            return
        _written.add(key)  # before it is: several threads may compile one program
    with events.span("report", name), _told_if_long(name):
        if not _write(lowered, wanted):
            _written.discard(key)


def _write(lowered: Reportable, wanted: AutoReport) -> bool:
    """Writes what can be written; for the rest there is a warning, as the run can do without.

    Returns:
      Whether all of it was written.
    """
    name, begin = lowered.program.name, time.perf_counter()
    with _warned_of_failure(name, "report"):
        report = lowered.report()
        folder = _new_folder(wanted.directory, name)
        for file in sorted(wanted.files):
            with _warned_of_failure(name, file):
                _write_file(lowered, report, folder / file)
        written = {path.name for path in folder.iterdir()}
        if written >= wanted.files:
            files.mark_complete(folder)
        if written:
            seconds = time.perf_counter() - begin
            log.get_logger().info("`%s`: report written to %s (%.1f s)", name, folder, seconds)
        return written >= wanted.files
    return False


@contextlib.contextmanager
def _warned_of_failure(name: str, what: str) -> Generator[None]:
    """Logs whatever the block raises, instead of raising it."""
    try:
        yield
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
        log.get_logger().warning("`%s`: no %s, the run goes on: %s", name, what, reason)


def _write_file(lowered: Reportable, report: Report, path: Path) -> None:
    match path.name:
        case "report.html":
            report.to_html(path)
        case "report.json":
            report.to_json(path)
        case "report.txt":
            files.write_text(path, f"{report}\n")
        case "program.txt":
            files.write_text(path, lowered.as_text(origins=True))
        case _:
            report.to_perfetto(path, limit=_TRACE_STEPS)


def _new_folder(directory: Path, program: str) -> Path:
    """A folder that nobody else has, whichever programs and processes write at the same time."""
    now = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    plain = re.sub(r"[^\w.-]+", "_", program).strip("_.").encode()[:_NAME_BYTES]
    name = plain.decode(errors="ignore") or "program"
    first = f"{now}__{os.getpid()}__{name}"
    names = itertools.chain([first], (f"{first}__{number}" for number in itertools.count(2)))
    while True:
        folder = directory / next(names)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


@contextlib.contextmanager
def _told_if_long(name: str) -> Generator[None]:
    """Logs that a report is being made, if that takes long."""
    text = "`%s`: its report is being made; large programs take a while"
    timer = threading.Timer(_LONG_SECONDS, log.get_logger().info, (text, name))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _warn(text: str) -> None:
    """Logs a warning, once in a process."""
    log.get_logger().warning(text)
