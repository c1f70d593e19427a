"""`IPUStrategy`: in its scope, Keras's models are trained and used by programs on IPUs.

The slides of seed 003 and the listings of seed 002.
"""

from __future__ import annotations

from ipujax.strategies import ipu_strategy as _ipu_strategy

__all__ = [
    "IPUStrategy",
    "IPUStrategyV1",
]


def __dir__() -> list[str]:
    return __all__


IPUStrategy = _ipu_strategy.IPUStrategy
IPUStrategyV1 = _ipu_strategy.IPUStrategyV1
