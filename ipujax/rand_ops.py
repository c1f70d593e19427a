"""Random operators."""

from __future__ import annotations

from ipujax.operators import random as _random

__all__ = [
    "dropout",
]


def __dir__() -> list[str]:
    return __all__


dropout = _random.dropout
