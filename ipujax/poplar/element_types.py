"""The element types of Poplar's tensors."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from ipujax.poplar.exceptions import type_error
from ipujax.poplar.user_lines import user_line


@dc.dataclass(frozen=True, slots=True)
class Type:
    """An element type.

    Attributes:
      name: C++'s name, such as "FLOAT".
      dtype: NumPy's type.
    """

    name: str
    dtype: np.dtype

    @property
    def size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def __str__(self) -> str:
        return self.name


FLOAT = Type("FLOAT", np.dtype(np.float32))
HALF = Type("HALF", np.dtype(np.float16))
INT = Type("INT", np.dtype(np.int32))
UNSIGNED_INT = Type("UNSIGNED_INT", np.dtype(np.uint32))
SHORT = Type("SHORT", np.dtype(np.int16))
UNSIGNED_SHORT = Type("UNSIGNED_SHORT", np.dtype(np.uint16))
CHAR = Type("CHAR", np.dtype(np.int8))
SIGNED_CHAR = Type("SIGNED_CHAR", np.dtype(np.int8))
UNSIGNED_CHAR = Type("UNSIGNED_CHAR", np.dtype(np.uint8))
BOOL = Type("BOOL", np.dtype(np.bool_))


_TYPES = {
    type.dtype: type
    for type in (
        FLOAT, HALF, INT, UNSIGNED_INT, SHORT, UNSIGNED_SHORT, SIGNED_CHAR, UNSIGNED_CHAR, BOOL,
    )
}  # fmt: skip


def type_of_dtype(dtype: np.dtype) -> Type:
    """Returns the element type of a dtype; raises an error for a dtype without one."""
    if (type := _TYPES.get(np.dtype(dtype))) is not None:
        return type
    raise type_error(
        f"arrays of {dtype} are no tensors of Poplar",
        where=user_line(),
        fix=f"cast it to one of {', '.join(map(str, _TYPES))}",
    )


def require_type(value: object, argument: str) -> Type:
    """Returns a value if it is an element type; else raises an error."""
    if isinstance(value, Type):
        return value
    raise type_error(
        f"{argument} is {value!r}, which is no element type",
        where=user_line(),
        fix="give poplar.FLOAT, HALF, INT, UNSIGNED_INT, SHORT, UNSIGNED_SHORT, CHAR or BOOL",
    )
