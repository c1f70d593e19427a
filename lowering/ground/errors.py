"""The errors that the compiler finds in a user's program, and the error for its own bugs."""

from __future__ import annotations

import re
from typing import Any

# The `repr` of objects that have none of their own, and the part of it that is worth reading.
_ADDRESSES = (
    (re.compile(r"<[\w<>.]*?(\w+) object at 0x[0-9a-f]+>"), r"<\1 object>"),
    (re.compile(r"<bound method ([\w<>.]+) of (?:<[^<>]*>|[^<>]*)>"), r"`\1`"),
    (re.compile(r"<(?:built-in )?(?:function|method) ([\w<>.]+) .*?at 0x[0-9a-f]+>"), r"`\1`"),
    (re.compile(r"<built-in function ([\w.]+)>"), r"`\1`"),
)


class IPUError(Exception):
    """The root of every error that ipujax raises on purpose.

    Errors can be pickled and copied, whatever their constructors take. Their only argument is the
    statement of what is wrong, so that handlers can compare it; `str` also says where it is and how
    to mend it. Functions and objects appear there by name, without memory addresses.

    Args:
      what: what is wrong, with the names and numbers of this program.
      where: the user's file and line, if there is one that the traceback does not show.
      fix: what to change, if `what` does not say so already.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        self.what, self.where, self.fix = _strip_addresses(what), where or "", fix or ""
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [*map(str, self.args)]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.args), self.__dict__


def _strip_addresses(text: str) -> str:
    for pattern, replacement in _ADDRESSES:
        text = pattern.sub(replacement, text)
    return text


def _restore_error(error_class: type[IPUError], args: tuple[Any, ...]) -> IPUError:
    builtin_base = OSError if issubclass(error_class, OSError) else BaseException
    error = builtin_base.__new__(error_class, *args)  # past the constructor
    error.args = args
    return error


class InternalError(IPUError):
    """A broken promise between two parts of the compiler: a bug of ours."""


class LoweringError(IPUError, ValueError):
    """A user's program that cannot be lowered."""


class TargetError(IPUError, ValueError):
    """An unknown chip, or a description that no chip can have."""


class ShardError(LoweringError):
    """Shards that the device does not have, or that do not divide its IPUs."""


class DeviceMeshError(LoweringError):
    """A program that is to be computed by JAX devices of its own choice."""


class CollectiveError(LoweringError):
    """A collective whose groups do not fit the number of replicas."""


class EnqueueError(LoweringError):
    """An outfeed that a program enqueues to twice, or an enqueue that was lost or is ambiguous."""


class OutsideCompilationError(LoweringError):
    """Host operations in a place from which the program cannot return to the host."""
