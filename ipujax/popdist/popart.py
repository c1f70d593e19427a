"""What PopART's sessions need of an instance, under the names that the original had for that."""

from __future__ import annotations

from ipujax import popdist
from ipujax.distribution.join import instance_count
from ipujax.popart.checks import check
from ipujax.popart.devices import DeviceConnectionType, DeviceInfo, DeviceManager
from ipujax.popart.options import SessionOptions


def configureSessionOptions(opts: SessionOptions) -> None:
    """Tells a session's options which instance this is, and of which replicas.

    Raises:
      PopARTTypeError: (a `TypeError`) no options.
    """
    options = check.instance(opts, SessionOptions, "opts", "popart.SessionOptions")
    local = popdist.getNumLocalReplicas()
    options.enableReplicatedGraphs, options.replicatedGraphCount = local > 1, local
    options.enableDistributedReplicatedGraphs = instance_count() > 1
    if options.enableDistributedReplicatedGraphs:
        options.globalReplicationFactor = popdist.getNumTotalReplicas()
        options.globalReplicaOffset = popdist.getReplicaIndexOffset()


def getDevice(
    ipus_per_replica: int | None = None,
    connectionType: DeviceConnectionType = DeviceConnectionType.Always,
) -> DeviceInfo:
    """A device with the IPUs of this instance.

    Args:
      ipus_per_replica: those that `ipurun` says by default.
      connectionType: as of a `DeviceManager`.

    Raises:
      PopARTError: (a `ValueError`) no device has so many IPUs.
    """
    each = ipus_per_replica
    if each is None:
        each = popdist.getNumIpusPerReplica()
    count = popdist.getNumLocalReplicas() * check.integer(each, "ipus_per_replica", at_least=1)
    return DeviceManager().acquireAvailableDevice(count, connectionType=connectionType)
