"""`PopDistStrategy`, where later releases have it."""

from __future__ import annotations

from ipujax.horovod import popdist_strategy

__all__ = ["PopDistStrategy"]


def __dir__() -> list[str]:
    return __all__


PopDistStrategy = popdist_strategy.PopDistStrategy
