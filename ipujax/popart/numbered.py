"""Enumerations whose members are numbers, too, as those of a library of C++ are in Python."""

from __future__ import annotations

import enum
from typing import Any


class NumberedEnum(enum.Enum):
    """Members that `int` takes, and that members of the same enumeration are compared with.

    The number is a member's value, or its place among the members where the value is a text. As in
    the original, no member equals a number.
    """

    def __int__(self) -> int:
        return self.value if isinstance(self.value, int) else [*type(self)].index(self)

    __index__ = __int__

    def __lt__(self, other: Any) -> bool:
        return int(self) < int(other) if isinstance(other, type(self)) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return int(self) <= int(other) if isinstance(other, type(self)) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return int(self) > int(other) if isinstance(other, type(self)) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return int(self) >= int(other) if isinstance(other, type(self)) else NotImplemented
