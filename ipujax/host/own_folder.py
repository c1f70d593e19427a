"""A folder of this user's among everybody's, such as one in /tmp: held open, and checked.

Another user may put a link or a folder of theirs where ours should be, before or while we use it.
So the folder is opened without following links, what was opened is checked, and all that is done in
it is done by its descriptor: a name that is swapped later leads nowhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from ipujax.host import files

_PRIVATE = 0o700


class ForeignFolderError(Exception):
    """A folder that is not safe to use; the message says why."""


class OwnFolder:
    """An open folder; see `opened`."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    def names(self) -> list[str]:
        """Of what is in it, sorted."""
        return sorted(os.listdir(self._path if self._descriptor is None else self._descriptor))

    def read_bytes(self, name: str, limit: int) -> bytes:
        """All of a file; see `files.read_bytes`."""
        return files.read_bytes(self._at(name), limit, dir_fd=self._descriptor)

    def write_text(self, name: str, text: str) -> None:
        """A file with this text; see `files.write_text`."""
        files.write_text(self._at(name), text, dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Takes a file away, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._descriptor)

    def _at(self, name: str) -> str:
        return str(self._path / name) if self._descriptor is None else name


@contextlib.contextmanager
def opened(path: Path, *, make: bool = False, private: bool = True) -> Generator[OwnFolder]:
    """A folder of which nobody else has a say.

    Elsewhere than on POSIX, where temporary folders are each user's own, nothing is checked.

    Args:
      path: where it is.
      make: whether to make it, for this user alone, and what is above it.
      private: whether others may not even look into it.

    Raises:
      ForeignFolderError: a link, no folder, another user's, or one that others may write to.
      OSError: one that is not there, or cannot be made or opened.
    """
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(_PRIVATE)
    if os.name != "posix":
        yield OwnFolder(path, None)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        _check(path.lstat(), path, private)  # says more, of a link or what is no folder
        raise
    try:
        _check(os.fstat(descriptor), path, private)
        yield OwnFolder(path, descriptor)
    finally:
        os.close(descriptor)


def _check(status: os.stat_result, path: Path, private: bool) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        raise ForeignFolderError(f"{path} is a link")
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignFolderError(f"{path} is no folder")
    if status.st_uid != os.geteuid():
        owner, user = _name(status.st_uid), _name(os.geteuid())
        raise ForeignFolderError(f"{path} belongs to {owner}, not to {user}")
    if mode & (0o077 if private else 0o022):
        raise ForeignFolderError(f"{path} is open to others (mode {mode:o}, not 700)")


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
