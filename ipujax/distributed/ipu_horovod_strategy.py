"""`IPUHorovodStrategy`, where later releases have it."""

from __future__ import annotations

from ipujax.horovod import ipu_horovod_strategy

__all__ = ["IPUHorovodStrategy"]


def __dir__() -> list[str]:
    return __all__


IPUHorovodStrategy = ipu_horovod_strategy.IPUHorovodStrategy
