"""PopDist: the number of this instance, a process that `ipurun` starts, and of its replicas.

The names are those of the original's package `popdist`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from ipujax.distribution import share_held_arrays
from ipujax.ground import (
    Checks,
    DistributionError,
    PyTree,
    current_instance,
    get_joined_instance,
    join_instances,
)
from ipujax.system import find_machine, most_ipus

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
    """Returns whether this process is an instance."""
    return get_joined_instance() is not None


def init() -> None:
    """Connects this process to the other instances; does nothing if it is connected or alone."""
    join_instances()


def getInstanceIndex() -> int:
    """Returns the index of this instance, from 0."""
    return current_instance().index


def getNumInstances() -> int:
    """Returns the number of instances."""
    return current_instance().count


def getNumTotalReplicas() -> int:
    """Returns the number of replicas of all instances together."""
    return current_instance().replicas


def getNumLocalReplicas() -> int:
    """Returns the number of replicas of this instance."""
    return current_instance().local_replicas


def getNumIpusPerReplica() -> int:
    """Returns the number of IPUs of a replica."""
    return current_instance().ipus_per_replica


@_check.guard
def checkNumIpusPerReplica(ipus_per_replica: int) -> bool:
    """Returns whether a replica has so many IPUs by the options of `ipurun`.

    Raises:
      DistributionError: (a `ValueError`) no number from 1 up.
    """
    number = _check.require_integer(ipus_per_replica, "ipus_per_replica", at_least=1)
    return number == getNumIpusPerReplica()


def getReplicaIndexOffset() -> int:
    """Returns the index of this instance's first replica among all."""
    return current_instance().replica_group_index * getNumLocalReplicas()


@_check.guard
def getDeviceId(ipus_per_replica: int | None = None) -> int:
    """Returns the id of a device with the IPUs of this instance, as `gc-info -l` shows them.

    IPUs are virtual, and each instance has a system of its own, so that all may use the same id.

    Args:
      ipus_per_replica: by default, the number that `ipurun` sets.

    Raises:
      DistributionError: (a `ValueError`) no device has so many IPUs.
    """
    num_ipus = ipus_per_replica
    if num_ipus is None:
        num_ipus = getNumIpusPerReplica()
    count = getNumLocalReplicas() * _check.require_integer(num_ipus, "ipus_per_replica", at_least=1)
    if count > most_ipus():
        raise DistributionError(
            f"{getNumLocalReplicas()} replicas of {num_ipus} IPUs need {count}, and a device has "
            f"up to {most_ipus()}",
            fix="start more instances with fewer replicas each",
        )
    return find_machine(count).find_free_device(count, set()).id


@_check.guard
def execute_on_instances(
    instances: Iterable[int], fn: Callable[..., object], *args: object, **kwargs: object
) -> Any:
    """Calls a function in some instances; returns its result there, and None elsewhere.

    Programs that it compiles must run without the other instances: `ipu.compile(alone=True)`.

    Raises:
      DistributionError: (a `ValueError`) no instances, or no function.
    """
    numbers = list(_check.require_iterable(instances, "instances", "numbers of instances"))
    _check.require_function(fn, "fn")
    return fn(*args, **kwargs) if getInstanceIndex() in numbers else None


@_check.guard
def gather(tree: PyTree) -> Any:
    """Gives all instances the arrays that `ipu.compile(gather=False)` has left in one of them.

    All instances have to call it, with the same tree; without others it changes nothing.

    Args:
      tree: arrays and other leaves; leaves that all instances have stay unchanged.

    Returns:
      The tree, with JAX arrays that can be read in every instance.
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(share_held_arrays(leaves))
