"""The seed's `tensorflow.python.ipu.sharded_optimizer`: see `ipujax.optimizers`."""

from __future__ import annotations

from ipujax.optimizers import ShardedOptimizer as ShardedOptimizer

__all__ = ["ShardedOptimizer"]


def __dir__() -> list[str]:
    return __all__
