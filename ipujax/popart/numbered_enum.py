"""The base class of enumerations whose members convert to integers, as in C++ bindings."""

from __future__ import annotations

import enum


class NumberedEnum(enum.Enum):
    """A base class of enumerations whose members convert to `int` and are ordered.

    The number is a member's value, or its position among the members if the value is a text. As in
    the original, no member equals a number.
    """

    def __int__(self) -> int:
        return self.value if isinstance(self.value, int) else [*type(self)].index(self)

    __index__ = __int__

    def __lt__(self, other: object) -> bool:
        return int(self) < int(other) if isinstance(other, type(self)) else NotImplemented

    def __le__(self, other: object) -> bool:
        return int(self) <= int(other) if isinstance(other, type(self)) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return int(self) > int(other) if isinstance(other, type(self)) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return int(self) >= int(other) if isinstance(other, type(self)) else NotImplemented
