"""Graphcore's utility operations: printing from inside compiled code."""

from __future__ import annotations

from ipujax.operators import internal as _internal

__all__ = [
    "print_tensor",
]


def __dir__() -> list[str]:
    return __all__


print_tensor = _internal.print_tensor
