"""`IPUMultiReplicaStrategy`: reduces over the replicas of all workers, or on the host.

Sources: seed 001, 18.10; facts distributed.multi_replica_*.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.optimizers import Summation
from ipujax.strategies import ReduceOp, WorkerStrategy, check

__all__ = ["IPUMultiReplicaStrategy", "IPUMultiReplicaStrategyV1"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class IPUMultiReplicaStrategy(WorkerStrategy):
    """A strategy that trains by the replicas of several workers, which `ipurun` starts.

    In `scope()` a pipeline adds up the gradients of the replicas of all workers, once per weight
    update; so do estimators whose `RunConfig` has it as `train_distribute`.

    Args:
      ipu_device: a logical device of this process.
      add_ipu_cross_replica_reductions: without, gradients stay local, also those of Keras's models:
        only what the program itself reduces, such as a `CrossReplicaOptimizer`, is.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(
        self, ipu_device: str = "/device:IPU:0", add_ipu_cross_replica_reductions: bool = True
    ):
        reduces_over_replicas = check.require_flag(
            add_ipu_cross_replica_reductions, "add_ipu_cross_replica_reductions"
        )
        super().__init__(ipu_device, Summation.REPLICAS if reduces_over_replicas else None)

    def _check_reduced(self, op: ReduceOp, value: object) -> None:
        """Raises for the mean of integers, as the original does."""
        for leaf in jax.tree.leaves(value):
            dtype = jnp.result_type(leaf)
            if op is ReduceOp.MEAN and not jnp.issubdtype(dtype, jnp.floating):
                raise check.type_error(
                    f"reduce was asked for the MEAN of {dtype}, which is not in the list of "
                    "allowed values: float16, bfloat16, float32",
                    "cast it first: value.astype(jnp.float32)",
                )


IPUMultiReplicaStrategyV1 = IPUMultiReplicaStrategy
