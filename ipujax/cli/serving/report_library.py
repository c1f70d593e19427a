"""The library of reports that a server shows: finds and reads their files."""

from __future__ import annotations

import dataclasses as dc
import gzip
import hashlib
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ipujax.ground import Bounds, ReportError, files
from ipujax.report import text_page as text

if TYPE_CHECKING:
    from ipujax.report import Report

_ENDINGS = (".json", ".json.gz")
_BEGINNING = 1024  # bytes
_SURE = ("report.json", "report.json.gz")  # files of these names must be reports
_AUTO_REPORT = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d__\d+__")  # begins its folders' names
_BOUNDS = Bounds(containers=2**20, values=2**23)
"""Bounds on a report's JSON, as parsing delays all requests; this much takes about a second."""
_PATIENCE = 5.0  # seconds that a request waits for files to be read
_BEING_READ = "it is being read, and shown as soon as that is done"
_INCOMPLETE = (
    f"its folder is not complete (there is no {files.COMPLETE}): the program is still writing it, "
    "was ended or failed meanwhile, or had an ipujax that wrote no such file"
)


@dc.dataclass(frozen=True, slots=True)
class Summary:
    """The headline numbers of a report.

    Attributes:
      name: the program's name.
      label: the user's name for this run, or "".
      system: its replicas, IPUs and chip.
      cycles: the cycles of one call.
      seconds: the time of one call.
      elements: the elements of one call, or 0; see `Report.elements`.
      fullest: bytes on the fullest tile.
      limit: bytes that a tile may hold.
      fits: whether the program fits in memory.
    """

    name: str
    label: str
    system: str
    cycles: int
    seconds: float
    elements: int
    fullest: int
    limit: int
    fits: bool


_Known: TypeAlias = dict[Path, tuple[tuple[int, int], Summary | str | None]]
"""By file: its time of writing and size when it was read, and the content read then."""


@dc.dataclass(frozen=True, slots=True)
class Entry:
    """A file of the library that holds a report, or should.

    Attributes:
      key: stands for the path in addresses.
      path: the file's path.
      written: the time of writing, in seconds since the epoch.
      size: the size in bytes.
      found: a summary of its report, or a text that says why it cannot be read.
      note: a note for the reader, or "".
    """

    key: str
    path: Path
    written: float
    size: int
    found: Summary | str
    note: str

    @property
    def display_title(self) -> str:
        """A title to tell it from others: its label, its file, or the folder of a report.json."""
        if isinstance(self.found, Summary) and self.found.label:
            return self.found.label
        return self.path.absolute().parent.name if self.path.name in _SURE else self.path.name


class Library:
    """The reports among some files, and in some directories and those below them.

    Files are looked for again each time, and read again only when they have changed: by one thread,
    so that no request waits for long, however many and large they are. In directories, JSON of
    other kinds is passed over, and so are names that begin with a dot. If a report's folder is one
    of autoReport's and not complete, a note says so.

    Args:
      paths: files and directories; files are shown whatever they hold.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._known: _Known = {}
        self._being_read: dict[tuple[Path, tuple[int, int]], Future[Summary | str | None]] = {}
        self._thread = ThreadPoolExecutor(1, "reports")
        self._paths_of: dict[str, Path] = {}
        self._lock = threading.Lock()

    @property
    def searched_paths(self) -> str:
        """The searched files and directories, as text."""
        return ", ".join(map(str, self._paths))

    def list_entries(self) -> list[Entry]:
        """Returns all reports there are, the newest first."""
        with self._lock:
            known_files, self._known = self._known, {}
            entries = {entry.key: entry for entry in self._scan_entries(known_files)}
        return sorted(entries.values(), key=lambda entry: (-entry.written, str(entry.path)))

    def find_entry(self, key: str) -> Entry | None:
        """Returns the entry with a key, if its file is still there."""
        return next((entry for entry in self.list_entries() if entry.key == key), None)

    def path_of_key(self, key: str) -> Path | None:
        """Returns the path of the report with a key, even if the file is gone by now."""
        return self._paths_of.get(key)

    def _scan_entries(self, known_files: _Known) -> Iterator[Entry]:
        deadline = time.monotonic() + _PATIENCE
        for path, must_be_report in self._find_files():
            try:
                status = path.stat()
            except OSError:  # removed meanwhile
                continue
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
                continue
            state = (status.st_mtime_ns, status.st_size)
            known_state, content = known_files.get(path, (None, None))
            if known_state != state:
                try:
                    content = self._wait_for_content(path, state, must_be_report, deadline)
                    self._known[path] = state, content
                except TimeoutError:
                    content = _BEING_READ
            else:
                self._known[path] = state, content
            if content is not None:
                key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
                self._paths_of[key] = path
                yield Entry(
                    key,
                    path,
                    status.st_mtime,
                    status.st_size,
                    content,
                    _describe_incomplete_folder(path),
                )

    def _wait_for_content(
        self, path: Path, state: tuple[int, int], must_be_report: bool, deadline: float
    ) -> Summary | str | None:
        """Returns the content of a file, if the thread has read it by the deadline.

        Raises:
          TimeoutError: the file is still being read.
        """
        for key in [key for key in self._being_read if key[0] == path and key[1] != state]:
            self._being_read.pop(key).cancel()  # the file has changed since
        if (path, state) not in self._being_read:
            self._being_read[path, state] = self._thread.submit(_read_summary, path, must_be_report)
        content = self._being_read[path, state].result(max(deadline - time.monotonic(), 0))
        del self._being_read[path, state]
        return content

    def _find_files(self) -> Iterator[tuple[Path, bool]]:
        """Yields files that may hold reports, and whether they must."""
        for path in self._paths:
            if not path.is_dir():
                yield path, True
                continue
            for folder, subfolders, names in os.walk(path):
                subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
                for name in sorted(names):
                    if name.endswith(_ENDINGS) and not name.startswith("."):
                        yield Path(folder, name), name in _SURE


def _describe_incomplete_folder(path: Path) -> str:
    folder = path.absolute().parent
    is_complete = not _AUTO_REPORT.match(folder.name) or files.is_complete(folder)
    return "" if is_complete else _INCOMPLETE


def load_report_to_serve(path: Path) -> Report:
    """Returns the report of a file that is small enough to be served; raises as `report.load`."""
    from ipujax.report import load_bounded_report  # the machine model, which takes a while

    return load_bounded_report(path, _BOUNDS)


def _read_summary(path: Path, must_be_report: bool) -> Summary | str | None:
    """Returns a file's summary or an error text; None for a file that is no report."""
    try:
        if not must_be_report and not _looks_like_a_report(path):
            return None
        report = load_report_to_serve(path)
    except ReportError as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    memory = report.memory
    return Summary(
        name=report.name or "program",
        label=report.label,
        system=text.describe_system(report),
        cycles=report.cycles,
        seconds=report.seconds,
        elements=report.elements,
        fullest=int(memory.tile_peak_bytes.max()),
        limit=memory.limit,
        fits=memory.fits,
    )


def _looks_like_a_report(path: Path) -> bool:
    """Returns whether a file begins like a report, without reading all of it."""
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rb") as file:
            return b'"schema"' in file.read(_BEGINNING)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return True  # reading all of it will report the error
