"""Optimizers that wrap an optax transformation and are one themselves.

A training step has two parts. `compute_gradients` maps the gradients of each mini-batch,
`apply_gradients` turns the mapped gradients into an update of the variables. `update`, the one
function that optax calls, does both. Optax's explicit state holds the values that the original's
optimizers kept in variables; outside compiled code there is one replica.
"""

from ipujax.optimizers import cross_replica_optimizer as cross_replica_optimizer
from ipujax.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
from ipujax.optimizers import map_gradient_optimizer as map_gradient_optimizer
from ipujax.optimizers import sharded_optimizer as sharded_optimizer
from ipujax.optimizers.cross_replica_optimizer import CrossReplicaOptimizer as CrossReplicaOptimizer
from ipujax.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
)
from ipujax.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
)
from ipujax.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizer as GradientAccumulationOptimizer,
)
from ipujax.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2,
)
from ipujax.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationState as GradientAccumulationState,
)
from ipujax.optimizers.ipu_optimizer import IpuOptimizer as IpuOptimizer
from ipujax.optimizers.ipu_optimizer import apply_gradients as apply_gradients
from ipujax.optimizers.ipu_optimizer import compute_gradients as compute_gradients
from ipujax.optimizers.ipu_optimizer import maps_gradients as maps_gradients
from ipujax.optimizers.map_gradient_optimizer import MapGradientOptimizer as MapGradientOptimizer
from ipujax.optimizers.sharded_optimizer import ShardedOptimizer as ShardedOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationState",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "ShardedOptimizer",
    "apply_gradients",
    "compute_gradients",
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "map_gradient_optimizer",
    "maps_gradients",
    "sharded_optimizer",
]


def __dir__() -> list[str]:
    return __all__
