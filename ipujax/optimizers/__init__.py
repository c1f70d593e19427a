"""Optimizers that wrap an optax transformation and are one themselves.

A training step has two parts. `compute_gradients` maps the gradients of each mini-batch,
`apply_gradients` turns the mapped gradients into an update of the variables. `update`, the one
function that optax calls, does both. Optax's explicit state holds the values that the original's
optimizers kept in variables; outside compiled code there is one replica.
"""

# The names of `__all__` are in the stub.
# pyright: reportUnsupportedDunderAll=false

import lazy_loader

__getattr__, _, _ = lazy_loader.attach_stub(__name__, __file__)

# The public names. The stub lists also the names that other rooms use.
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
