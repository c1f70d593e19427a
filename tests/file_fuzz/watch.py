"""What reading a file made this process do."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.file_fuzz.changes import BAIT

_FORBIDDEN = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.spawn",
    "os.startfile",
    "socket.connect",
    "socket.bind",
    "pickle.find_class",
    "ctypes.dlopen",
    "webbrowser.open",
)
_CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MOST_MEMORY = 2**30  # bytes more than before
_IMPORTS = (BAIT, "this", "antigravity")

_heard: list[str] | None = None
_folder = ""


@contextlib.contextmanager
def watching(folder: Path, seconds: float) -> Generator[list[str]]:
    """Gathers what a block did and no reader may do.

    Args:
      folder: the only place where files may be made.
      seconds: how long it may take.
    """
    global _heard, _folder
    _start()
    found: list[str] = []
    _heard, _folder = found, os.path.realpath(folder)
    before, begun = _memory(), time.monotonic()
    try:
        yield found
    finally:
        _heard = None
        took, more = time.monotonic() - begun, _memory() - before
        if took > seconds:
            found.append(f"took {took:.0f} s")
        if more > _MOST_MEMORY:
            found.append(f"took {more / 2**30:.1f} GiB of memory")


def _memory() -> int:
    """The most memory that the process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_is_started = False


def _start() -> None:
    global _is_started
    if not _is_started:
        _is_started = True
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _heard is None:
        return
    if event in _FORBIDDEN:
        _heard.append(f"{event}{arguments!r:.200}")
    elif event == "import" and str(arguments[0]).partition(".")[0] in _IMPORTS:
        _heard.append(f"imported {arguments[0]}")
    elif event in _CHANGING and not (_is_below_descriptor(arguments) or _is_inside(arguments[0])):
        _heard.append(f"{event}{arguments!r:.200}")
    elif event == "open" and _opens_for_writing(arguments) and not _is_inside(arguments[0]):
        _heard.append(f"wrote {arguments[0]!r:.200}")


def _opens_for_writing(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    has_flags = isinstance(flags, int) and bool(flags & _WRITES)
    return has_flags or any(letter in "wax+" for letter in mode or "")


def _is_below_descriptor(arguments: tuple[Any, ...]) -> bool:
    """Whether a name is one in a folder that was opened before."""
    return type(arguments[-1]) is int and arguments[-1] >= 0


def _is_inside(path: Any) -> bool:
    if not isinstance(path, str | bytes | os.PathLike):
        return True  # a descriptor, of what was opened before
    name = os.path.realpath(os.fsdecode(path))
    return name.startswith((_folder, "/dev/null", "/proc/self"))
