"""Writes reports while programs compile, as `autoReport` of the engine's options asks.

Every compiled program gets a folder of its own, named by date, time, process and program; the
marker of `ground.files` in it says that all of its files were written.
Wrong options are errors; a report that cannot be made or written is a warning, because a run must
not end because of something that only observes it.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import datetime
import difflib
import functools
import importlib.metadata
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ipujax.ground import ConfigError, __version__, events, files
from ipujax.report.debug_info import write_debug_info
from ipujax.system import EngineOptions, log

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from lowering import ir

_PREFIX = "autoReport."
_ALL = "autoReport.all"
_DIRECTORY = "autoReport.directory"

# Which files an option asks for.
_FILES = {
    "autoReport.outputGraphProfile": (
        *("report.html", "report.json", "report.txt"),
        "framework.json",
    ),
    "autoReport.outputDebugInfo": ("debug.cbor",),
    "autoReport.outputExecutionProfile": ("trace.json.gz",),
    "autoReport.outputLoweredVars": ("report.json",),
    "autoReport.outputSerializedGraph": ("program.txt",),
}
# Options of the original that change nothing here, and why.
_NEEDLESS = {
    "autoReport.outputArchive": "there is no archive of binaries for tiles",
    "autoReport.streamAtEachRun": "a report is modelled before the first run",
    "autoReport.executionProfileProgramRunCount": "a report is about one modelled call",
}
_KNOWN = (_ALL, _DIRECTORY, *_FILES, *_NEEDLESS)

_LONG_SECONDS = 3.0  # after which a log line says what the run waits for
_TRACE_STEPS = 200_000  # more than a screen can show; some seconds to write, a few MB
_NAME_BYTES = 80  # of a program in the name of a folder; names may have 255

_lock = threading.Lock()
_written: set[tuple[AutoReport, str, str]] = set()


@dc.dataclass(frozen=True)
class AutoReport:
    """The files of a report to write, and the directory for them.

    Attributes:
      directory: the directory in which every program gets a folder.
      files: the names of the files in that folder; empty if no report is asked for.
    """

    directory: Path
    files: frozenset[str]


def parse_auto_report_options(options: EngineOptions) -> AutoReport:
    """Parses the engine's options that ask for reports.

    Raises:
      ConfigError: (a `ValueError`) an unknown option that begins with `autoReport`, or a value
        that an option does not take.
    """
    for name in options.option_names:
        if name.lower().startswith(_PREFIX.lower()) and name not in _KNOWN:
            raise ConfigError(f"{options.locate_option(name)} is unknown; {_suggest_option(name)}")
    default = options.is_true(_ALL, default=False)
    options_in_force = (name for name in _FILES if options.is_true(name, default=default))
    files = frozenset(file for name in options_in_force for file in _FILES[name])
    for name, reason in _NEEDLESS.items():
        if name in options.option_names:
            _warn_once(f"{options.locate_option(name)} changes nothing: {reason}")
    directory = options.get_option(_DIRECTORY, "")
    if not isinstance(directory, str) or "\0" in directory:
        raise ConfigError(
            f"{options.locate_option(_DIRECTORY)} is {directory!r}, but must be a path"
        )
    if directory and not files:
        _warn_once(
            f"{options.locate_option(_DIRECTORY)} is set, but no report is asked for: set {_ALL} "
            '"true"'
        )
    return AutoReport(Path(directory).expanduser().absolute(), files)


def _suggest_option(name: str) -> str:
    option_of_short_name = {option.removeprefix(_PREFIX).lower(): option for option in _KNOWN}
    matches = difflib.get_close_matches(name[len(_PREFIX) :].lower(), option_of_short_name, n=1)
    return (
        f"did you mean {option_of_short_name[matches[0]]!r}?"
        if matches
        else f"there are {', '.join(_KNOWN)}"
    )


class Reportable(Protocol):
    """A program that can be modelled for reports."""

    @property
    def program(self) -> ir.Program:
        """The Program for all IPUs."""
        ...

    def compute_program_hash(self) -> str:
        """Returns a text that tells the program from all others."""
        ...

    def report(self) -> Report:
        """Models the cost of the program."""
        ...

    def as_text(self, *, origins: bool = False) -> str:
        """Returns the Program as text, one step per line."""
        ...


def write_auto_report(lowered: Reportable, options: EngineOptions) -> None:
    """Writes the report files that the options ask for, once for each program.

    A directory that cannot be made, or written to, is a warning, and the run goes on.

    Raises:
      ConfigError: (a `ValueError`) wrong options.
    """
    auto_report = parse_auto_report_options(options)
    if not auto_report.files:
        return
    try:
        auto_report.directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        _warn_once(
            f"{options.locate_option(_DIRECTORY)}: the directory {str(auto_report.directory)!r} "
            f"cannot be made, and the run goes on without reports: {problem.strerror}; name "
            "another one"
        )
        return
    name = lowered.program.name
    key = (auto_report, name, lowered.compute_program_hash())
    with _lock:
        if key in _written:
            return
        _written.add(key)  # already now, as several threads may compile one program
    with events.span("report", name), _log_if_slow(name):
        if not _write_report_files(lowered, auto_report):
            _written.discard(key)


def _write_report_files(lowered: Reportable, auto_report: AutoReport) -> bool:
    """Writes the files of a report; those that fail are warnings, as the run goes on.

    Returns:
      Whether all files were written.
    """
    name, start_time = lowered.program.name, time.perf_counter()
    with _log_failure(name, "report"):
        report = lowered.report()
        folder = _create_report_folder(auto_report.directory, name)
        for file in sorted(auto_report.files):
            with _log_failure(name, file):
                _write_report_file(lowered, report, folder / file)
        written = {path.name for path in folder.iterdir()}
        if written >= auto_report.files:
            files.mark_complete(folder)
        if written:
            seconds = time.perf_counter() - start_time
            log.get_logger().info("`%s`: report written to %s (%.1f s)", name, folder, seconds)
        return written >= auto_report.files
    return False


@contextlib.contextmanager
def _log_failure(name: str, file: str) -> Generator[None]:
    """Logs whatever the block raises as a warning, instead of raising it."""
    try:
        yield
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
        log.get_logger().warning("`%s`: no %s, the run goes on: %s", name, file, reason)


def _write_report_file(lowered: Reportable, report: Report, path: Path) -> None:
    match path.name:
        case "report.html":
            report.to_html(path)
        case "report.json":
            report.to_json(path)
        case "report.txt":
            files.write_text(path, f"{report}\n")
        case "program.txt":
            files.write_text(path, lowered.as_text(origins=True))
        case "framework.json":
            files.write_text(path, json.dumps(_describe_framework(lowered, report), indent=2))
        case "debug.cbor":
            write_debug_info(report, path)
        case _:
            report.to_perfetto(path, limit=_TRACE_STEPS)


def _describe_framework(lowered: Reportable, report: Report) -> dict[str, str | int]:
    """Returns what made a program, and for what, as the content of framework.json."""
    return {
        "framework": "ipujax",
        "version": __version__,
        "jax_version": importlib.metadata.version("jax"),
        "program": report.name,
        "program_hash": lowered.compute_program_hash(),
        "target": report.target.name,
        "num_ipus": report.num_ipus,
        "replication_factor": report.replication_factor,
        "instances": report.instances,
    }


def _create_report_folder(directory: Path, program: str) -> Path:
    """Creates a folder of a new name, whichever programs and processes write at the same time."""
    timestamp = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    safe_name = re.sub(r"[^\w.-]+", "_", program).strip("_.").encode()[:_NAME_BYTES]
    name = safe_name.decode(errors="ignore") or "program"
    base_name = f"{timestamp}__{os.getpid()}__{name}"
    names = itertools.chain(
        [base_name], (f"{base_name}__{number}" for number in itertools.count(2))
    )
    while True:
        folder = directory / next(names)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


@contextlib.contextmanager
def _log_if_slow(name: str) -> Generator[None]:
    """Logs that a report is being made, if the block takes long."""
    text = "`%s`: its report is being made; large programs take a while"
    timer = threading.Timer(_LONG_SECONDS, log.get_logger().info, (text, name))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _warn_once(text: str) -> None:
    """Logs a warning, once in a process."""
    log.get_logger().warning(text)
