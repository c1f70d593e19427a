"""The session options and device of a PopART instance, under the original's names."""

from __future__ import annotations

from ipujax import popdist
from ipujax.ground import count_replica_groups
from ipujax.popart import DeviceConnectionType, DeviceInfo, DeviceManager, SessionOptions, check


def configureSessionOptions(opts: SessionOptions) -> None:
    """Sets the replicas of this instance in a session's options.

    Raises:
      PopARTTypeError: (a `TypeError`) no options.
    """
    options = check.require_instance(opts, SessionOptions, "opts", "popart.SessionOptions")
    local_replicas = popdist.getNumLocalReplicas()
    options.enableReplicatedGraphs, options.replicatedGraphCount = (
        local_replicas > 1,
        local_replicas,
    )
    options.enableDistributedReplicatedGraphs = count_replica_groups() > 1
    if options.enableDistributedReplicatedGraphs:
        options.globalReplicationFactor = popdist.getNumTotalReplicas()
        options.globalReplicaOffset = popdist.getReplicaIndexOffset()


def getDevice(
    ipus_per_replica: int | None = None,
    connectionType: DeviceConnectionType = DeviceConnectionType.Always,
) -> DeviceInfo:
    """Returns a device with the IPUs of this instance.

    Args:
      ipus_per_replica: by default, the number that `ipurun` sets.
      connectionType: as of a `DeviceManager`.

    Raises:
      PopARTError: (a `ValueError`) no device has so many IPUs.
    """
    num_ipus = ipus_per_replica
    if num_ipus is None:
        num_ipus = popdist.getNumIpusPerReplica()
    count = popdist.getNumLocalReplicas() * check.require_integer(
        num_ipus, "ipus_per_replica", at_least=1
    )
    return DeviceManager().acquireAvailableDevice(count, connectionType=connectionType)
