"""Collectives that exchange data between replicas: `all_gather` and `all_to_all`."""

from __future__ import annotations

from ipujax.operators import all_to_all as _all_to_all

__all__ = [
    "all_gather",
    "all_to_all",
]


def __dir__() -> list[str]:
    return __all__


all_gather = _all_to_all.all_gather
all_to_all = _all_to_all.all_to_all
