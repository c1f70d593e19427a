"""`IPUMultiWorkerStrategy`: workers that train together, each a process that `ipurun` starts."""

from __future__ import annotations

from typing import Any

from ipujax.ground import join_tensorflow_cluster
from ipujax.optimizers import Summation
from ipujax.strategies.worker_strategy import WorkerStrategy, check


@check.guard
class IPUMultiWorkerStrategy(WorkerStrategy):
    """Synchronous training by several workers.

    In `scope()` a pipeline adds up the gradients of all workers (of each, the mean of its replicas)
    once per weight update; so do estimators whose `RunConfig` has it as `train_distribute`. Divide
    the loss by the size of the batches of all workers together.

    Args:
      cluster_resolver: not asked: the workers have met already, by `ipurun` or by `popdist.init()`
        under a scheduler, or else meet here, as `TF_CONFIG` says. Anything, also None.
      ipu_device: a logical device of this process.
      variables_on_host: changes nothing in custom loops: in JAX, variables are arguments and
        results. `IPUPipelineEstimator` refuses it, as in the original.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DeviceError: (a `ValueError`) no such device.
      DistributionError: (a `ValueError`) `TF_CONFIG` names other workers, and JAX has computed
        something before this process met them, or they do not come.
      ConfigError: (a `ValueError`) what `TF_CONFIG` holds does not fit.
    """

    def __init__(
        self,
        cluster_resolver: Any = None,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ):
        join_tensorflow_cluster()
        super().__init__(ipu_device, Summation.WORKERS)
        self.cluster_resolver = cluster_resolver
        self.variables_on_host = check.require_flag(variables_on_host, "variables_on_host")


IPUMultiWorkerStrategyV1 = IPUMultiWorkerStrategy
