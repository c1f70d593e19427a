"""`IPUHorovodStrategy`: the strategy for several workers without a cluster resolver.

Sources: seed 001, 18.10; fact distributed.hvd_collectives.
"""

from __future__ import annotations

from ipujax.strategies import IPUMultiWorkerStrategy, check

__all__ = ["IPUHorovodStrategy", "IPUHorovodStrategyV1"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class IPUHorovodStrategy(IPUMultiWorkerStrategy):
    """A strategy like `IPUMultiWorkerStrategy`, without a cluster resolver.

    Args:
      ipu_device: a logical device of this process.
      variables_on_host: as of `IPUMultiWorkerStrategy`.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False):
        super().__init__(None, ipu_device, variables_on_host)


IPUHorovodStrategyV1 = IPUHorovodStrategy
