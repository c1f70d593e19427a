"""Locks on files, which end with their process however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HAS_LOCKS = fcntl is not None


class LockedError(Exception):
    """A file that another process, or another part of this one, has locked."""


def lock_file(descriptor: int) -> None:
    """Locks a file for this process.

    Raises:
      BlockingIOError: another one has it.
      OSError: there are no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def hold_lock_file(path: str, keeps_file_on_error: bool = False) -> Generator[bool]:
    """Creates and locks a file while the block runs, and removes it at the end.

    Yields whether the file existed: then the process that had made it died inside its block.
    Without locks, on some file systems and on Windows, several may enter.

    Args:
      path: the path of the file.
      keeps_file_on_error: whether a block that raises counts as one whose process died.

    Raises:
      LockedError: somebody else is inside such a block.
      OSError: the file cannot be made.
    """
    existed = os.path.exists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with contextlib.ExitStack() as context_stack:
        context_stack.callback(os.close, descriptor)
        try:
            lock_file(descriptor)
        except BlockingIOError:
            raise LockedError(path) from None
        except OSError:  # there are no locks
            pass
        is_over = not keeps_file_on_error
        try:
            yield existed
            is_over = True
        finally:
            if is_over:
                with contextlib.suppress(OSError):
                    os.unlink(path)
