"""`IPUMultiWorkerStrategy`: workers that train together, each a process that `ipurun` starts.

Sources: seed 001, 18.9; facts distributed.mw_*.
"""

from __future__ import annotations

from ipujax.strategies import multi_worker_strategy as _multi_worker_strategy

__all__ = [
    "IPUMultiWorkerStrategy",
    "IPUMultiWorkerStrategyV1",
    "ReduceOp",
]


def __dir__() -> list[str]:
    return __all__


IPUMultiWorkerStrategy = _multi_worker_strategy.IPUMultiWorkerStrategy
IPUMultiWorkerStrategyV1 = _multi_worker_strategy.IPUMultiWorkerStrategyV1
ReduceOp = _multi_worker_strategy.ReduceOp
