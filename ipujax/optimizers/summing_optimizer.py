"""The optimizer that adds up gradients over the workers, or replicas, of a program."""

from __future__ import annotations

import optax

from ipujax.ground import PyTree
from ipujax.optimizers.ipu_optimizer import IpuOptimizer, map_gradients
from ipujax.optimizers.trained_leaves import check_gradients
from ipujax.optimizers.worker_summation import Summation


class SummingOptimizer(IpuOptimizer):
    """An optimizer that adds up gradients, once per update, then applies another one.

    Args:
      opt: an optax transformation.
      summation: the workers or replicas to sum over.
    """

    def __init__(self, opt: optax.GradientTransformation, summation: Summation):
        super().__init__(opt)
        self.summation = summation

    def apply_gradients(
        self, gradients: PyTree, state: PyTree, params: PyTree = None, **extra: object
    ) -> PyTree:
        """Adds gradients up, then applies the wrapped optimizer."""
        check_gradients(f"apply_gradients of {type(self).__name__}", gradients, params)
        total = map_gradients(self.summation.sum_across_replicas, gradients)
        return super().apply_gradients(total, state, params, **extra)
