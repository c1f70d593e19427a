"""The configuration of an instance's system, under the original's name."""

from __future__ import annotations

from ipujax import popdist
from ipujax.ground import Checks, DistributionError, DistributionTypeError
from ipujax.system import IPUConfig

_check = Checks(DistributionTypeError, DistributionError)


def set_ipu_config(
    config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True
) -> IPUConfig:
    """Sets the number of processes, the index of this one, and its IPUs in a configuration.

    Args:
      config: changed, and returned.
      ipus_per_replica: by default, the number that `ipurun` sets.
      configure_device: whether the IPUs are chosen, too.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DistributionError: (a `ValueError`) no number of IPUs.
    """
    _check.require_instance(config, IPUConfig, "config of set_ipu_config")
    num_ipus = ipus_per_replica
    if num_ipus is None:
        num_ipus = popdist.getNumIpusPerReplica()
    count = popdist.getNumLocalReplicas() * _check.require_integer(
        num_ipus, "ipus_per_replica", at_least=1
    )
    if _check.require_flag(configure_device, "configure_device"):
        config.auto_select_ipus = count
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = popdist.getNumInstances()
    distribution.process_index = popdist.getInstanceIndex()
    return config
