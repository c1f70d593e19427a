"""Opens a folder of this user in a shared place such as /tmp, and checks that it is safe.

Another user may put a link or a folder of theirs where ours should be, before or while we use it.
So the folder is opened without following links, what was opened is checked, and all access goes
through its descriptor: a name that is swapped later has no effect.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from ipujax.ground import files

_PRIVATE = 0o700


class ForeignFolderError(Exception):
    """A folder that is not safe to use; the message says why."""


class OwnFolder:
    """An open folder that only this user may write to; see `open_own_folder`."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    def list_names(self) -> list[str]:
        """Returns the names of the files in the folder, sorted."""
        return sorted(os.listdir(self._path if self._descriptor is None else self._descriptor))

    def read_bytes(self, name: str, limit: int) -> bytes:
        """Reads all of a file; see `files.read_bytes`."""
        return files.read_bytes(self._path_of_name(name), limit, dir_fd=self._descriptor)

    def write_text(self, name: str, text: str) -> None:
        """Writes a text to a file; see `files.write_text`."""
        files.write_text(self._path_of_name(name), text, dir_fd=self._descriptor)

    def remove_file(self, name: str) -> None:
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path_of_name(name), dir_fd=self._descriptor)

    def _path_of_name(self, name: str) -> str:
        return str(self._path / name) if self._descriptor is None else name


@contextlib.contextmanager
def open_own_folder(
    path: Path, *, create: bool = False, is_private: bool = True
) -> Generator[OwnFolder]:
    """Opens a folder that nobody else may change.

    Elsewhere than on POSIX, where temporary folders are each user's own, nothing is checked.

    Args:
      path: the path of the folder.
      create: whether to create it, for this user alone, and its parents.
      is_private: whether others may not even read it.

    Raises:
      ForeignFolderError: a link, no folder, another user's, or one that others may write to.
      OSError: one that is not there, or cannot be made or opened.
    """
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(_PRIVATE)
    if os.name != "posix":
        yield OwnFolder(path, None)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        _check_folder_is_own(path.lstat(), path, is_private)  # a better error for links and files
        raise
    try:
        _check_folder_is_own(os.fstat(descriptor), path, is_private)
        yield OwnFolder(path, descriptor)
    finally:
        os.close(descriptor)


def _check_folder_is_own(status: os.stat_result, path: Path, is_private: bool) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        raise ForeignFolderError(f"{path} is a link")
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignFolderError(f"{path} is no folder")
    if status.st_uid != os.geteuid():
        owner, user = _user_name_of_id(status.st_uid), _user_name_of_id(os.geteuid())
        raise ForeignFolderError(f"{path} belongs to {owner}, not to {user}")
    if mode & (0o077 if is_private else 0o022):
        raise ForeignFolderError(f"{path} is open to others (mode {mode:o}, not 700)")


def _user_name_of_id(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
