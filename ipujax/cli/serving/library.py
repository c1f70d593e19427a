"""Which reports there are."""

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

from ipujax.errors import ReportError
from ipujax.host import files
from ipujax.host.json_text import Bounds
from ipujax.report.presentation import text

if TYPE_CHECKING:
    from ipujax.report.report import Report

_ENDINGS = (".json", ".json.gz")
_BEGINNING = 1024  # bytes
_SURE = ("report.json", "report.json.gz")  # what is called so is meant to be one
_AUTO_REPORT = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d__\d+__")  # begins its folders' names
_BOUNDS = Bounds(containers=2**20, values=2**23)
"""Of a report: parsing holds up everybody who asks, and this takes about a second."""
_PATIENCE = 5.0  # seconds that one who asks waits for files to be read
_BEING_READ = "it is being read, and shown as soon as that is done"
_INCOMPLETE = (
    f"its folder is not complete (there is no {files.COMPLETE}): the program is still writing it, "
    "was ended or failed meanwhile, or had an ipujax that wrote no such file"
)


@dc.dataclass(frozen=True, slots=True)
class Summary:
    """What a report says in a line.

    Attributes:
      name: the program's.
      label: what its user calls this run, or "".
      system: its replicas, IPUs and chip.
      cycles: of one call.
      seconds: of one call.
      elements: of one call, or 0; see `Report.elements`.
      fullest: bytes on the fullest tile.
      limit: what a tile may hold.
      fits: whether its memory does.
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
"""What files held, and when they were written and how large they were then."""


@dc.dataclass(frozen=True, slots=True)
class Entry:
    """A file that holds a report, or should.

    Attributes:
      key: stands for the path in addresses.
      path: where it is.
      written: when, in seconds since the epoch.
      size: in bytes.
      found: what it holds; a text says why that cannot be read.
      note: what else there is to know of it, or "".
    """

    key: str
    path: Path
    written: float
    size: int
    found: Summary | str
    note: str

    @property
    def title(self) -> str:
        """What to call it beside others: its label, or its file or the folder of a report.json."""
        if isinstance(self.found, Summary) and self.found.label:
            return self.found.label
        return self.path.absolute().parent.name if self.path.name in _SURE else self.path.name


class Library:
    """The reports among some files, and in some directories and those below them.

    Files are looked for again each time, and read again only when they have changed: by one thread,
    so that nobody waits for long, whatever they hold and however many there are. In directories,
    JSON of other kinds is passed over, and so are names that begin with a dot. A report is whole
    whatever is beside it; where the folder is one of autoReport's and not complete, a note says so.

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
    def places(self) -> str:
        """Where it looks."""
        return ", ".join(map(str, self._paths))

    def entries(self) -> list[Entry]:
        """All reports there are, the newest first."""
        with self._lock:
            known, self._known = self._known, {}
            entries = {entry.key: entry for entry in self._entries(known)}
        return sorted(entries.values(), key=lambda entry: (-entry.written, str(entry.path)))

    def entry(self, key: str) -> Entry | None:
        """The one of a key, if it is still there."""
        return next((entry for entry in self.entries() if entry.key == key), None)

    def path(self, key: str) -> Path | None:
        """Where the report of a key is, or was when it was last there."""
        return self._paths_of.get(key)

    def _entries(self, known: _Known) -> Iterator[Entry]:
        until = time.monotonic() + _PATIENCE
        for path, sure in self._files():
            try:
                status = path.stat()
            except OSError:  # taken away meanwhile
                continue
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
                continue
            state = (status.st_mtime_ns, status.st_size)
            before, found = known.get(path, (None, None))
            if before != state:
                try:
                    found = self._found(path, state, sure, until)
                    self._known[path] = state, found
                except TimeoutError:
                    found = _BEING_READ
            else:
                self._known[path] = state, found
            if found is not None:
                key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
                self._paths_of[key] = path
                yield Entry(key, path, status.st_mtime, status.st_size, found, _note(path))

    def _found(
        self, path: Path, state: tuple[int, int], sure: bool, until: float
    ) -> Summary | str | None:
        """What a file holds, if the thread has read it by then.

        Raises:
          TimeoutError: it has not yet.
        """
        for key in [key for key in self._being_read if key[0] == path and key[1] != state]:
            self._being_read.pop(key).cancel()  # of a file that has changed since
        if (path, state) not in self._being_read:
            self._being_read[path, state] = self._thread.submit(_read, path, sure)
        found = self._being_read[path, state].result(max(until - time.monotonic(), 0))
        del self._being_read[path, state]
        return found

    def _files(self) -> Iterator[tuple[Path, bool]]:
        """Files that may hold reports, and whether they surely should."""
        for path in self._paths:
            if not path.is_dir():
                yield path, True
                continue
            for folder, below, names in os.walk(path):
                below[:] = sorted(name for name in below if not name.startswith("."))
                for name in sorted(names):
                    if name.endswith(_ENDINGS) and not name.startswith("."):
                        yield Path(folder, name), name in _SURE


def _note(path: Path) -> str:
    folder = path.absolute().parent
    whole = not _AUTO_REPORT.match(folder.name) or files.is_complete(folder)
    return "" if whole else _INCOMPLETE


def load(path: Path) -> Report:
    """The report of a file, if it is not too large to be served; raises as `report.load`."""
    from ipujax.report.report import load_within  # the machine model, which takes a while

    return load_within(path, _BOUNDS)


def _read(path: Path, sure: bool) -> Summary | str | None:
    """What a file holds; None for one that need not hold a report and does not."""
    try:
        if not sure and not _looks_like_a_report(path):
            return None
        read = load(path)
    except ReportError as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    memory = read.memory
    return Summary(
        name=read.name or "program",
        label=read.label,
        system=text.system(read),
        cycles=read.cycles,
        seconds=read.seconds,
        elements=read.elements,
        fullest=int(memory.tile_peak_bytes.max()),
        limit=memory.limit,
        fits=memory.fits,
    )


def _looks_like_a_report(path: Path) -> bool:
    """Whether a file begins like one: a trace beside it may be large, and need not be read."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            return b'"schema"' in file.read(_BEGINNING)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return True  # whoever reads all of it says what is wrong
