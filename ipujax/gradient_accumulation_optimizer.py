"""The seed's `tensorflow.python.ipu.gradient_accumulation_optimizer`: see `ipujax.optimizers`."""

from __future__ import annotations

from ipujax.optimizers import (
    CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
)
from ipujax.optimizers import (
    CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
)
from ipujax.optimizers import GradientAccumulationOptimizer as GradientAccumulationOptimizer
from ipujax.optimizers import GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2
from ipujax.optimizers import GradientAccumulationState as GradientAccumulationState

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationState",
]


def __dir__() -> list[str]:
    return __all__
