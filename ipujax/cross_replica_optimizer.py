"""The seed's `tensorflow.python.ipu.cross_replica_optimizer`: see `ipujax.optimizers`."""

from __future__ import annotations

from ipujax.optimizers import CrossReplicaOptimizer as CrossReplicaOptimizer

__all__ = ["CrossReplicaOptimizer"]


def __dir__() -> list[str]:
    return __all__
