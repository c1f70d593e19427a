"""`PopDistStrategy`, where later releases have it."""

from __future__ import annotations

from ipujax.horovod.popdist_strategy import PopDistStrategy as PopDistStrategy

__all__ = ["PopDistStrategy"]


def __dir__() -> list[str]:
    return __all__
