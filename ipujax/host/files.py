"""Whole files: whoever opens one finds what it held before or all that is new, never a half.

A file is written beside its place, under a name that begins with `.ipujax-`, synced, and renamed.
A process that is killed leaves the old file; what it had begun is taken away by the next one that
writes into that folder. A folder of several files is complete when its marker is there, or is there
only when it is complete: `new_folder`.

What is no regular file, such as a pipe, a terminal or /dev/null, is written directly.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

from ipujax.host.locks import HAS_LOCKS, lock
from ipujax.host.reading import StrPath as StrPath
from ipujax.host.reading import UnfitFileError as UnfitFileError
from ipujax.host.reading import read_bytes as read_bytes
from ipujax.host.reading import reading as reading

COMPLETE = "complete.txt"
"""The marker of a folder of several files: written last."""

_COMPLETE_TEXT = "ipujax wrote this file last: all that it was asked for is in this folder.\n"
_BEGINNING, _END = ".ipujax-", ".tmp"  # of the names of files that are being written
_BUFFER = 2**18  # bytes
# Flags that Windows does not know, or that only Windows knows.
_BINARY: int = getattr(os, "O_BINARY", 0)
_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)


def write_text(path: StrPath, text: str, *, dir_fd: int | None = None) -> None:
    """Writes a file in UTF-8, with the text's own ends of lines; see `replacing`."""
    content = text.encode()
    with replacing(path, dir_fd=dir_fd) as file:
        file.write(content)


def append_text(path: StrPath, text: str) -> None:
    """Adds to the end of a file, in UTF-8, which is made if need be: for logs, line by line."""
    with open(path, "ab") as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(path: StrPath, *, dir_fd: int | None = None) -> Generator[BinaryIO]:
    """A new file, which takes the place of the old one when the block ends.

    If the block raises, the old file stays. A link stays too, and what it leads to is replaced. A
    new file has the mode that `open` would give it; an existing one keeps its mode and, where
    that is allowed, its owner. Other names of it (hard links) keep the old content.

    Args:
      path: where; or a name in the folder `dir_fd`.
      dir_fd: a descriptor of a folder; in it nothing is followed, a link is replaced itself.

    Raises:
      OSError: a file that cannot be written, for the same reasons as by `open`, or because its
        folder cannot.
    """
    shown = os.fspath(path)
    if dir_fd is not None:
        with _beside(shown, shown, None, dir_fd) as file:
            yield file
        return
    try:
        existing = os.open(shown, os.O_WRONLY | _BINARY)
    except FileNotFoundError:
        existing = None
    status = None
    if existing is not None:
        try:
            status = os.fstat(existing)
            if not stat.S_ISREG(status.st_mode) or _is_own_output(status):
                with _direct(existing, shown) as file:
                    yield file
                return
        finally:
            os.close(existing)
    with _beside(os.path.realpath(shown), shown, status, None) as file:
        yield file


@contextlib.contextmanager
def replacing_by_name(path: StrPath) -> Generator[str]:
    """As `replacing`, for libraries that write files by their names.

    The block writes a file of the same name, whose path it is given, in a folder of its own.

    Raises:
      OSError: a file that cannot be written, or a folder in its place.
    """
    shown = os.fspath(path)
    target = os.path.realpath(shown)
    above = os.path.dirname(target)
    _sweep(above, None)
    with contextlib.ExitStack() as held:
        with _named(shown):
            descriptor, unfinished = _new_folder(above)
        held.callback(os.close, descriptor)
        held.callback(shutil.rmtree, unfinished, ignore_errors=True)
        written = os.path.join(unfinished, os.path.basename(shown))
        yield written
        with _named(shown):
            with open(written, "r+b") as file:
                with contextlib.suppress(FileNotFoundError):
                    _take_over(file.fileno(), os.stat(target))
                os.fsync(file.fileno())
            os.replace(written, target)
    with _named(shown):
        _sync_folder(above)


@contextlib.contextmanager
def new_folder(path: StrPath) -> Generator[str]:
    """A folder that is there, with all that the block has put into it, when the block ends.

    The block fills a folder of another name, which it is given. If it raises, nothing is there.

    Raises:
      OSError: a folder that cannot be written, or one that is there already and not empty.
    """
    shown = os.path.realpath(path)
    above = os.path.dirname(shown)
    _sweep(above, None)
    with contextlib.ExitStack() as held:
        with _named(shown):
            descriptor, unfinished = _new_folder(above)
            held.callback(os.close, descriptor)
        try:
            yield unfinished
            with _named(shown):
                _sync_all(unfinished)
                os.rename(unfinished, shown)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    with _named(shown):
        _sync_folder(above)


def remove(path: StrPath) -> None:
    """Takes a file or a folder away, at once: nobody finds half of it.

    Raises:
      OSError: one that is not there, or cannot be taken away.
    """
    if not os.path.isdir(path):
        os.unlink(path)
        return
    above = os.path.dirname(os.path.abspath(path))
    _sweep(above, None)
    unnamed = _unfinished(above)
    os.rename(path, unnamed)
    shutil.rmtree(unnamed, ignore_errors=True)  # what stays of it is swept


def mark_complete(folder: StrPath) -> None:
    """Says of a folder that everything in it has been written.

    Raises:
      OSError: a marker that cannot be written.
    """
    write_text(Path(folder, COMPLETE), _COMPLETE_TEXT)
    _sync_folder(os.fspath(Path(folder).absolute().parent))


def is_complete(folder: StrPath) -> bool:
    """Whether `mark_complete` was reached."""
    return Path(folder, COMPLETE).is_file()


@contextlib.contextmanager
def _beside(
    path: str, shown: str, replaced: os.stat_result | None, dir_fd: int | None
) -> Generator[BinaryIO]:
    """Writes under another name, and takes that away again if the block raises."""
    folder = os.path.dirname(path)
    _sweep(folder, dir_fd)
    with contextlib.ExitStack() as held:
        with _named(shown):
            # What was private is at no moment open to others.
            descriptor, unfinished = _new_file(folder, dir_fd, 0o600 if replaced else 0o666)
            held.callback(os.close, descriptor)
        try:
            with _named(shown):
                _take_over(descriptor, replaced)
            with io.BufferedWriter(_Named(descriptor, shown), _BUFFER) as file:
                yield file
            with _named(shown):
                os.fsync(descriptor)
                if not HAS_LOCKS:
                    held.close()  # Windows renames no open files
                os.replace(unfinished, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=dir_fd)
            raise
    with _named(shown):
        _sync_folder(folder or os.curdir, dir_fd)


@contextlib.contextmanager
def _direct(descriptor: int, shown: str) -> Generator[BinaryIO]:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, 0)
    with io.BufferedWriter(_Named(descriptor, shown), _BUFFER) as file:
        yield file


class _Named(io.FileIO):
    """An open file that others close; what cannot be written to it names it."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path

    def write(self, data: Any, /) -> int:
        with _named(self._path):
            return super().write(data)


@contextlib.contextmanager
def _named(path: str) -> Generator[None]:
    """Has errors name the file that was to be written, and not the one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _is_own_output(status: os.stat_result) -> bool:
    """Whether a file is this process's stdout or stderr, as /dev/stdout behind `>` is.

    Were it replaced, what is printed afterwards would go to a file without a name.
    """
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                return True
    return False


def _new_file(folder: str, dir_fd: int | None, mode: int) -> tuple[int, str]:
    """A file that nobody else has, locked as long as it is open: `_sweep` leaves it alone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY
    return _new(folder, lambda path: os.open(path, flags, mode, dir_fd=dir_fd))


def _new_folder(folder: str) -> tuple[int, str]:
    """The same for a folder."""

    def make(path: str) -> int:
        os.mkdir(path)
        return os.open(path, os.O_RDONLY)

    return _new(folder, make)


def _new(folder: str, make: Callable[[str], int]) -> tuple[int, str]:
    while True:
        path = _unfinished(folder)
        descriptor = make(path)
        try:
            lock(descriptor)
        except BlockingIOError:  # a sweep was quicker, and takes it away
            os.close(descriptor)
            continue
        except OSError:  # a file system without locks, on which nothing is swept
            return descriptor, path
        if os.fstat(descriptor).st_nlink:
            return descriptor, path
        os.close(descriptor)


def _unfinished(folder: str) -> str:
    """A name in a folder that tells what is being written, or taken away."""
    return os.path.join(folder, f"{_BEGINNING}{secrets.token_hex(8)}{_END}")


def _take_over(descriptor: int, replaced: os.stat_result | None) -> None:
    """Gives a new file the owner and the mode of the one that it replaces."""
    if replaced is None or os.name != "posix":
        return
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    with contextlib.suppress(PermissionError):  # a file system without modes
        os.fchmod(descriptor, stat.S_IMODE(replaced.st_mode))


def _sweep(folder: str, dir_fd: int | None) -> None:
    """Takes away what processes that are gone had begun to write in a folder.

    A lock tells whether its writer lives: unlike a process id it is right for other containers
    and machines that share the folder, and it ends with the process whatever ends that.
    """
    try:
        names = os.listdir(dir_fd if dir_fd is not None else folder or os.curdir)
    except OSError:  # not there, or not for us; writing into it says more
        return
    for name in names:
        if not (name.startswith(_BEGINNING) and name.endswith(_END)):
            continue
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            descriptor = _open_left(path, dir_fd)
            held.callback(os.close, descriptor)
            lock(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                shutil.rmtree(path, dir_fd=dir_fd)
            else:
                os.unlink(path, dir_fd=dir_fd)


def _open_left(path: str, dir_fd: int | None) -> int:
    try:
        return os.open(path, os.O_RDWR | _AT_ONCE | _NO_LINKS, dir_fd=dir_fd)
    except IsADirectoryError:
        return os.open(path, os.O_RDONLY | _NO_LINKS, dir_fd=dir_fd)


def _sync_all(folder: str) -> None:
    """Has the disk know what is in a folder, however deep."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDWR | _BINARY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_folder(place)


def _sync_folder(folder: str, dir_fd: int | None = None) -> None:
    """Has the disk know the names in a folder."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY, dir_fd=dir_fd)
    except PermissionError:  # one that may be written and not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)
