"""`IPUHorovodStrategy`, where later releases have it."""

from __future__ import annotations

from ipujax.horovod.ipu_horovod_strategy import IPUHorovodStrategy as IPUHorovodStrategy

__all__ = ["IPUHorovodStrategy"]


def __dir__() -> list[str]:
    return __all__
