"""Locks on files: they end with their process, whatever ends that."""

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


def lock(descriptor: int) -> None:
    """Locks a file for this process.

    Raises:
      BlockingIOError: another one has it.
      OSError: there are no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked(path: str, stays_on_error: bool = False) -> Generator[bool]:
    """A file that is there and locked while the block runs, and is taken away at its end.

    Gives whether it was there before: then the process that had made it died inside its block. On
    file systems without locks, and where there are none, nobody is kept away.

    Args:
      path: of the file.
      stays_on_error: whether a block that raises counts as one whose process died.

    Raises:
      LockedError: somebody else is inside such a block.
      OSError: the file cannot be made.
    """
    was_there = os.path.exists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with contextlib.ExitStack() as held:
        held.callback(os.close, descriptor)
        try:
            lock(descriptor)
        except BlockingIOError:
            raise LockedError(path) from None
        except OSError:  # there are no locks
            pass
        is_over = not stays_on_error
        try:
            yield was_there
            is_over = True
        finally:
            if is_over:
                with contextlib.suppress(OSError):
                    os.unlink(path)
