"""PopDist: what an instance, a process that `ipurun` starts, knows of itself.

The names are those of the original's package `popdist`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from ipujax.checks.arguments import Checks
from ipujax.distribution.holding import brought_together
from ipujax.distribution.instance import Instance
from ipujax.distribution.join import here, instance, join
from ipujax.errors import DistributionError
from ipujax.system.device_ids import DEVICES, first_free

__all__ = [
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "gather",
    "getDeviceId",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
]


def __dir__() -> list[str]:
    return __all__


_check = Checks(DistributionError, DistributionError)


def isPopdistEnvSet() -> bool:
    """Whether this process is an instance."""
    return instance() is not None


def init() -> None:
    """Has this process meet the other instances; does nothing where it has, or there are none."""
    join()


def getInstanceIndex() -> int:
    """Which instance this is, from 0."""
    return _instance().index


def getNumInstances() -> int:
    """How many instances there are."""
    return _instance().count


def getNumTotalReplicas() -> int:
    """Replicas of all instances together."""
    return _instance().replicas


def getNumLocalReplicas() -> int:
    """Replicas of this instance."""
    return _instance().local_replicas


def getNumIpusPerReplica() -> int:
    """IPUs of a replica."""
    return _instance().ipus_per_replica


@_check.guard
def checkNumIpusPerReplica(ipus_per_replica: int) -> bool:
    """Whether `ipurun` says that a replica has so many IPUs.

    Raises:
      DistributionError: (a `ValueError`) no number from 1 up.
    """
    number = _check.integer(ipus_per_replica, "ipus_per_replica", at_least=1)
    return number == getNumIpusPerReplica()


def getReplicaIndexOffset() -> int:
    """The index of this instance's first replica among all."""
    return _instance().share_of_replicas * getNumLocalReplicas()


@_check.guard
def getDeviceId(ipus_per_replica: int | None = None) -> int:
    """The id of a device with the IPUs of this instance, as `gc-info -l` shows them.

    IPUs are virtual, and each instance has a system of its own, so that all may use the same id.

    Args:
      ipus_per_replica: those that `ipurun` says by default.

    Raises:
      DistributionError: (a `ValueError`) no device has so many IPUs.
    """
    each = ipus_per_replica
    if each is None:
        each = getNumIpusPerReplica()
    count = getNumLocalReplicas() * _check.integer(each, "ipus_per_replica", at_least=1)
    most = max(len(device.ipus) for device in DEVICES)
    if count > most:
        raise DistributionError(
            f"{getNumLocalReplicas()} replicas of {each} IPUs need {count}, and a device has up to "
            f"{most}",
            fix="start more instances with fewer replicas each",
        )
    return first_free(count, set()).id


@_check.guard
def execute_on_instances(
    instances: Iterable[int], fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a function in some instances; gives what it gives there, and None elsewhere.

    What it compiles is to run without the other instances: `ipu.compile(alone=True)`.

    Raises:
      DistributionError: (a `ValueError`) no instances, or no function.
    """
    numbers = list(_check.iterable(instances, "instances", "numbers of instances"))
    _check.function(fn, "fn")
    return fn(*args, **kwargs) if getInstanceIndex() in numbers else None


@_check.guard
def gather(tree: Any) -> Any:
    """Gives all instances what `ipu.compile(gather=False)` has left in one of them.

    All instances have to call it, with the same tree; without others it changes nothing.

    Args:
      tree: of arrays and anything else; what all have already stays as it is.

    Returns:
      The tree, with JAX arrays that can be read in every instance.
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(brought_together(leaves))


def _instance() -> Instance:
    return here()
