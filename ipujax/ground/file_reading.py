"""Reads regular files only, and no more than a limit: never waits for a pipe or a device."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Generator
from typing import TypeAlias

StrPath: TypeAlias = str | os.PathLike[str]

_BINARY: int = getattr(os, "O_BINARY", 0)
_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)


class UnfitFileError(ValueError):
    """A file that is not read; the message goes behind its name: `is a pipe, ...`."""


def read_bytes(path: StrPath, limit: int, *, dir_fd: int | None = None) -> bytes:
    """Reads all of a regular file.

    Args:
      path: where; or a name in the folder `dir_fd`.
      limit: how many bytes it may have.
      dir_fd: a descriptor of a folder, in which no link is followed.

    Raises:
      UnfitFileError: (a `ValueError`) a pipe, device, socket or link, or more bytes than `limit`.
      OSError: a file that is not there or cannot be read, or a folder.
    """
    with open_regular_file(path, dir_fd=dir_fd) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UnfitFileError(f"has more than {limit:,} bytes")
    return content


@contextlib.contextmanager
def open_regular_file(path: StrPath, *, dir_fd: int | None = None) -> Generator[io.BufferedReader]:
    """Opens a regular file to be read, in bytes.

    Args:
      path: where; or a name in the folder `dir_fd`.
      dir_fd: a descriptor of a folder, in which no link is followed.

    Raises:
      UnfitFileError: (a `ValueError`) a pipe, device, socket or link.
      OSError: a file that is not there or cannot be read, or a folder.
    """
    file_name = os.fspath(path)
    # Before it is opened, since that blocks on pipes and moves tapes; and again, if it was swapped.
    _check_readable(os.stat(file_name, dir_fd=dir_fd, follow_symlinks=dir_fd is None), file_name)
    flags = os.O_RDONLY | _BINARY | _AT_ONCE | (0 if dir_fd is None else _NO_LINKS)
    descriptor = os.open(file_name, flags, dir_fd=dir_fd)
    try:
        _check_readable(os.fstat(descriptor), file_name)
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _check_readable(status: os.stat_result, path: str) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    if not stat.S_ISREG(mode):
        raise UnfitFileError(f"is {kinds.get(stat.S_IFMT(mode), 'a device')}, no regular file")
