"""Loops on the device: for a fixed number of iterations, or while a condition holds."""

from __future__ import annotations

from ipujax.operators import loops as _loops

__all__ = [
    "repeat",
    "while_loop",
]


def __dir__() -> list[str]:
    return __all__


repeat = _loops.repeat
while_loop = _loops.while_loop
