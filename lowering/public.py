"""What `dir()` shows of objects that users hold: what they may use, not the work inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def lists(*names: str) -> Callable[[Class], Class]:
    """Has `dir()` of a class's objects list these names alone, or all without an underscore."""

    def listing(kind: Class) -> Class:
        def listed(self: object) -> list[str]:
            return sorted(names or (n for n in object.__dir__(self) if not n.startswith("_")))

        setattr(kind, "__dir__", listed)  # noqa: B010  # which the type of `kind` does not allow
        return kind

    return listing
