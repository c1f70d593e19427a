"""The names that `dir()` shows of objects that users hold: the public ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def limit_dir_to(*names: str) -> Callable[[Class], Class]:
    """Makes `dir()` of a class's objects list these names alone; without names, the public ones."""

    def set_dir(cls: Class) -> Class:
        def list_public_names(self: object) -> list[str]:
            return sorted(names or (n for n in object.__dir__(self) if not n.startswith("_")))

        setattr(cls, "__dir__", list_public_names)  # noqa: B010  # which the class's type does not allow
        return cls

    return set_dir
