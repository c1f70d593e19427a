"""The optimizer of sharded models."""

from __future__ import annotations

import optax

from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check


@check.guard
class ShardedOptimizer(IpuOptimizer):
    """An optimizer that passes everything on to the wrapped optimizer.

    The original put each gradient on the shard of its forward operation. Marks do so without this
    wrapper: a backward operation carries the mark of its forward one, and an update is placed on
    the IPU of its operands. Programs of the original need not be changed.

    Args:
      optimizer: an optax transformation.

    Raises:
      OptimizerTypeError: (a `TypeError`) `optimizer` is no transformation.
    """

    def __init__(self, optimizer: optax.GradientTransformation):
        super().__init__(optimizer)
