"""Matrix products computed in parts, one after the other."""

from __future__ import annotations

from ipujax.operators import math as _math

__all__ = [
    "serialized_matmul",
]


def __dir__() -> list[str]:
    return __all__


serialized_matmul = _math.serialized_matmul
