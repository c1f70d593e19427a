"""Writes whole files: a reader finds the old content or all of the new, never a part.

A file is written in its folder under a name that begins with `.ipujax-`, synced, and renamed.
A process that is killed leaves the old file; the next one that writes into that folder removes what
it had begun. A folder of several files is complete when its marker is there, or is there
only when it is complete: `create_complete_folder`.

Pipes, terminals, /dev/null and all else that is no regular file are written directly.
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

from ipujax.ground.file_locks import HAS_LOCKS, lock_file
from ipujax.ground.file_reading import StrPath as StrPath
from ipujax.ground.file_reading import UnfitFileError as UnfitFileError
from ipujax.ground.file_reading import open_regular_file as open_regular_file
from ipujax.ground.file_reading import read_bytes as read_bytes

COMPLETE = "complete.txt"
"""The name of the file that marks a folder of several files as complete: written last."""

_COMPLETE_TEXT = "ipujax wrote this file last: all that it was asked for is in this folder.\n"
_BEGINNING, _END = ".ipujax-", ".tmp"  # of temporary names
_BUFFER = 2**18  # bytes
# Flags that Windows does not know, or that only Windows knows.
_BINARY: int = getattr(os, "O_BINARY", 0)
_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)


def write_text(path: StrPath, text: str, *, dir_fd: int | None = None) -> None:
    """Writes a file in UTF-8, with the text's own ends of lines; see `replace_file`."""
    content = text.encode()
    with replace_file(path, dir_fd=dir_fd) as file:
        file.write(content)


def append_text(path: StrPath, text: str) -> None:
    """Appends text in UTF-8 to a file, creating it if need be: for logs, line by line."""
    with open(path, "ab") as file:
        file.write(text.encode())


@contextlib.contextmanager
def replace_file(path: StrPath, *, dir_fd: int | None = None) -> Generator[BinaryIO]:
    """Opens a new file, which takes the place of the old one when the block ends.

    If the block raises, the old file stays. A link stays too, and what it leads to is replaced. A
    new file has the mode that `open` would give it; an existing one keeps its mode and, where
    that is allowed, its owner. Other names of it (hard links) keep the old content.

    Args:
      path: the path of the file; or a name in the folder `dir_fd`.
      dir_fd: a descriptor of a folder; in it nothing is followed, a link is replaced itself.

    Raises:
      OSError: a file that cannot be written, for the same reasons as by `open`, or because its
        folder cannot.
    """
    file_name = os.fspath(path)
    if dir_fd is not None:
        with _write_temporary_file(file_name, file_name, None, dir_fd) as file:
            yield file
        return
    try:
        old_descriptor = os.open(file_name, os.O_WRONLY | _BINARY)
    except FileNotFoundError:
        old_descriptor = None
    old_status = None
    if old_descriptor is not None:
        try:
            old_status = os.fstat(old_descriptor)
            if not stat.S_ISREG(old_status.st_mode) or _is_stdout_or_stderr(old_status):
                with _write_directly(old_descriptor, file_name) as file:
                    yield file
                return
        finally:
            os.close(old_descriptor)
    with _write_temporary_file(os.path.realpath(file_name), file_name, old_status, None) as file:
        yield file


@contextlib.contextmanager
def replace_file_by_name(path: StrPath) -> Generator[str]:
    """Replaces a file like `replace_file`, for libraries that write files by their names.

    The block gets the path of a file of the same name, in a temporary folder, and writes it.

    Raises:
      OSError: a file that cannot be written, or a folder in its place.
    """
    file_name = os.fspath(path)
    target = os.path.realpath(file_name)
    parent = os.path.dirname(target)
    _remove_abandoned_files(parent, None)
    with contextlib.ExitStack() as context_stack:
        with _name_path_in_errors(file_name):
            descriptor, temporary_folder = _create_locked_folder(parent)
        context_stack.callback(os.close, descriptor)
        context_stack.callback(shutil.rmtree, temporary_folder, ignore_errors=True)
        new_path = os.path.join(temporary_folder, os.path.basename(file_name))
        yield new_path
        with _name_path_in_errors(file_name):
            with open(new_path, "r+b") as file:
                with contextlib.suppress(FileNotFoundError):
                    _copy_owner_and_mode(file.fileno(), os.stat(target))
                os.fsync(file.fileno())
            os.replace(new_path, target)
    with _name_path_in_errors(file_name):
        _sync_folder(parent)


@contextlib.contextmanager
def create_complete_folder(path: StrPath) -> Generator[str]:
    """Creates a folder that appears, with all that the block has written, when the block ends.

    The block gets a temporary folder and fills it. If it raises, no folder is created.

    Raises:
      OSError: a folder that cannot be written, or one that is there already and not empty.
    """
    folder = os.path.realpath(path)
    parent = os.path.dirname(folder)
    _remove_abandoned_files(parent, None)
    with contextlib.ExitStack() as context_stack:
        with _name_path_in_errors(folder):
            descriptor, temporary_folder = _create_locked_folder(parent)
            context_stack.callback(os.close, descriptor)
        try:
            yield temporary_folder
            with _name_path_in_errors(folder):
                _sync_folder_tree(temporary_folder)
                os.rename(temporary_folder, folder)
        except BaseException:
            shutil.rmtree(temporary_folder, ignore_errors=True)
            raise
    with _name_path_in_errors(folder):
        _sync_folder(parent)


def remove_at_once(path: StrPath) -> None:
    """Removes a file or a folder at once, so that nobody finds a part of it.

    Raises:
      OSError: one that does not exist, or cannot be removed.
    """
    if not os.path.isdir(path):
        os.unlink(path)
        return
    parent = os.path.dirname(os.path.abspath(path))
    _remove_abandoned_files(parent, None)
    temporary_path = _temporary_path(parent)
    os.rename(path, temporary_path)
    shutil.rmtree(temporary_path, ignore_errors=True)  # the next sweep removes its remains


def mark_complete(folder: StrPath) -> None:
    """Writes the marker that says that a folder is complete.

    Raises:
      OSError: a marker that cannot be written.
    """
    write_text(Path(folder, COMPLETE), _COMPLETE_TEXT)
    _sync_folder(os.fspath(Path(folder).absolute().parent))


def is_complete(folder: StrPath) -> bool:
    """Returns whether a folder has the marker of `mark_complete`."""
    return Path(folder, COMPLETE).is_file()


@contextlib.contextmanager
def _write_temporary_file(
    path: str, file_name: str, old_status: os.stat_result | None, dir_fd: int | None
) -> Generator[BinaryIO]:
    """Writes a file under a temporary name, and removes that again if the block raises."""
    folder = os.path.dirname(path)
    _remove_abandoned_files(folder, dir_fd)
    with contextlib.ExitStack() as context_stack:
        with _name_path_in_errors(file_name):
            # A private file must be at no moment readable by others.
            descriptor, temporary_path = _create_locked_file(
                folder, dir_fd, 0o600 if old_status else 0o666
            )
            context_stack.callback(os.close, descriptor)
        try:
            with _name_path_in_errors(file_name):
                _copy_owner_and_mode(descriptor, old_status)
            with io.BufferedWriter(_BorrowedFile(descriptor, file_name), _BUFFER) as file:
                yield file
            with _name_path_in_errors(file_name):
                os.fsync(descriptor)
                if not HAS_LOCKS:
                    context_stack.close()  # Windows renames no open files
                os.replace(temporary_path, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary_path, dir_fd=dir_fd)
            raise
    with _name_path_in_errors(file_name):
        _sync_folder(folder or os.curdir, dir_fd)


@contextlib.contextmanager
def _write_directly(descriptor: int, file_name: str) -> Generator[BinaryIO]:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, 0)
    with io.BufferedWriter(_BorrowedFile(descriptor, file_name), _BUFFER) as file:
        yield file


class _BorrowedFile(io.FileIO):
    """An open file that others close; errors of writing name its path."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path

    def write(self, data: Any, /) -> int:
        with _name_path_in_errors(self._path):
            return super().write(data)


@contextlib.contextmanager
def _name_path_in_errors(path: str) -> Generator[None]:
    """Makes errors name the file to be written, and not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _is_stdout_or_stderr(status: os.stat_result) -> bool:
    """Returns whether a file is this process's stdout or stderr, as /dev/stdout behind `>` is.

    If it were replaced, later output would go to a file without a name.
    """
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                return True
    return False


def _create_locked_file(folder: str, dir_fd: int | None, mode: int) -> tuple[int, str]:
    """Creates a file of a new name, locked as long as it is open, so that no sweep removes it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY
    return _create_locked(folder, lambda path: os.open(path, flags, mode, dir_fd=dir_fd))


def _create_locked_folder(folder: str) -> tuple[int, str]:
    """Creates a folder of a new name, locked as long as it is open."""

    def open_new_folder(path: str) -> int:
        os.mkdir(path)
        return os.open(path, os.O_RDONLY)

    return _create_locked(folder, open_new_folder)


def _create_locked(folder: str, create: Callable[[str], int]) -> tuple[int, str]:
    while True:
        path = _temporary_path(folder)
        descriptor = create(path)
        try:
            lock_file(descriptor)
        except BlockingIOError:  # a sweep locked it first, and removes it
            os.close(descriptor)
            continue
        except OSError:  # a file system without locks, on which nothing is swept
            return descriptor, path
        if os.fstat(descriptor).st_nlink:
            return descriptor, path
        os.close(descriptor)


def _temporary_path(folder: str) -> str:
    """Returns a new path in a folder, for a file that is being written or removed."""
    return os.path.join(folder, f"{_BEGINNING}{secrets.token_hex(8)}{_END}")


def _copy_owner_and_mode(descriptor: int, old_status: os.stat_result | None) -> None:
    """Gives a new file the owner and the mode of the one that it replaces."""
    if old_status is None or os.name != "posix":
        return
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, old_status.st_uid, old_status.st_gid)
    with contextlib.suppress(PermissionError):  # a file system without modes
        os.fchmod(descriptor, stat.S_IMODE(old_status.st_mode))


def _remove_abandoned_files(folder: str, dir_fd: int | None) -> None:
    """Removes the temporary files of processes that are gone from a folder.

    A lock shows whether its writer lives: unlike a process id it is right for other containers and
    machines that share the folder, and it ends with the process in any case.
    """
    try:
        names = os.listdir(dir_fd if dir_fd is not None else folder or os.curdir)
    except OSError:  # missing or forbidden; writing into it raises a better error
        return
    for name in names:
        if not (name.startswith(_BEGINNING) and name.endswith(_END)):
            continue
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError), contextlib.ExitStack() as context_stack:
            descriptor = _open_abandoned(path, dir_fd)
            context_stack.callback(os.close, descriptor)
            lock_file(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                shutil.rmtree(path, dir_fd=dir_fd)
            else:
                os.unlink(path, dir_fd=dir_fd)


def _open_abandoned(path: str, dir_fd: int | None) -> int:
    try:
        return os.open(path, os.O_RDWR | _AT_ONCE | _NO_LINKS, dir_fd=dir_fd)
    except IsADirectoryError:
        return os.open(path, os.O_RDONLY | _NO_LINKS, dir_fd=dir_fd)


def _sync_folder_tree(folder: str) -> None:
    """Syncs the files and names of a folder to disk, at any depth."""
    for subfolder, _, names in os.walk(folder, topdown=False):
        for name in names:
            descriptor = os.open(os.path.join(subfolder, name), os.O_RDWR | _BINARY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_folder(subfolder)


def _sync_folder(folder: str, dir_fd: int | None = None) -> None:
    """Syncs the names in a folder to disk."""
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
