"""The optimizer that averages gradients over the replicas."""

from __future__ import annotations

import optax

from ipujax.ground import PyTree
from ipujax.operators import cross_replica_mean
from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check, map_gradients
from ipujax.optimizers.trained_leaves import check_gradients


@check.guard
class CrossReplicaOptimizer(IpuOptimizer):
    """An optimizer that averages gradients over the replicas, then applies another one.

    It is a mean, as in the original, although that called `cross_replica_sum`. With one replica,
    and outside compiled code, it changes nothing. Gradients that are None stay None. The mean
    is taken in `apply_gradients`, hence in a pipeline once per update.

    Args:
      opt: an optax transformation.
      name: the named scope of applying gradients.

    Raises:
      OptimizerTypeError: (a `TypeError`) `opt` is no transformation.
    """

    def __init__(
        self, opt: optax.GradientTransformation, name: str | None = "CrossReplicaOptimizer"
    ):
        super().__init__(opt, name)

    def apply_gradients(
        self, gradients: PyTree, state: PyTree, params: PyTree = None, **extra: object
    ) -> PyTree:
        """Averages gradients over the replicas, then applies the wrapped optimizer."""
        check_gradients(f"apply_gradients of {type(self).__name__}", gradients, params)
        averaged = map_gradients(cross_replica_mean, gradients)
        return super().apply_gradients(averaged, state, params, **extra)
