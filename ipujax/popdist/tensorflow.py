"""The configuration of an instance's system, under the name that the original had for it."""

from __future__ import annotations

from ipujax import popdist
from ipujax.checks.arguments import Checks
from ipujax.config import IPUConfig
from ipujax.errors import DistributionError, DistributionTypeError

_check = Checks(DistributionTypeError, DistributionError)


def set_ipu_config(
    config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True
) -> IPUConfig:
    """Tells a configuration which instance this is, and what IPUs it needs.

    Args:
      config: changed, and given back.
      ipus_per_replica: those that `ipurun` says by default.
      configure_device: whether the IPUs are chosen, too.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DistributionError: (a `ValueError`) no number of IPUs.
    """
    _check.instance(config, IPUConfig, "config of set_ipu_config")
    each = ipus_per_replica
    if each is None:
        each = popdist.getNumIpusPerReplica()
    count = popdist.getNumLocalReplicas() * _check.integer(each, "ipus_per_replica", at_least=1)
    if _check.flag(configure_device, "configure_device"):
        config.auto_select_ipus = count
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = popdist.getNumInstances()
    distribution.process_index = popdist.getInstanceIndex()
    return config
