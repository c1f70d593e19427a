"""`PopDistStrategy`: later releases' name of `IPUMultiReplicaStrategy`."""

from __future__ import annotations

from ipujax.ground import DistributionNotImplementedError
from ipujax.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from ipujax.strategies import check

__all__ = ["PopDistStrategy"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class PopDistStrategy(IPUMultiReplicaStrategy):
    """A strategy that trains by the replicas of several workers, which `ipurun` starts.

    Args:
      ipu_device: a logical device of this process.
      add_ipu_cross_replica_reductions: as for `IPUMultiReplicaStrategy`.
      enable_dataset_iterators: True or False; iterators of data sets are given to functions as any
        others, so that it changes nothing.
      enable_keras_extensions: must be True: in the scope Keras's models run as programs on IPUs.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DistributionNotImplementedError: (a `NotImplementedError`) `enable_keras_extensions=False`.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ):
        check.require_flag(enable_dataset_iterators, "enable_dataset_iterators")
        if not check.require_flag(enable_keras_extensions, "enable_keras_extensions"):
            raise DistributionNotImplementedError(
                "PopDistStrategy without enable_keras_extensions is not there",
                fix="use Keras's models outside of its scope, where Keras is as it was",
            )
        super().__init__(ipu_device, add_ipu_cross_replica_reductions)
