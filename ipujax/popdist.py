"""PopDist: what an instance, a process that `ipurun` starts, knows of itself.

The names are those of the original's package `popdist`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipujax.checks.arguments import Checks
from ipujax.distribution.instance import Instance
from ipujax.distribution.join import instance, join
from ipujax.errors import DistributionError

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


def execute_on_instances(
    instances: Iterable[int], fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a function in some instances; gives what it gives there, and None elsewhere.

    Raises:
      DistributionError: (a `ValueError`) no instances, or no function.
    """
    numbers = list(_check.iterable(instances, "instances", "numbers of instances"))
    _check.function(fn, "fn")
    return fn(*args, **kwargs) if getInstanceIndex() in numbers else None


def _instance() -> Instance:
    return instance() or Instance()
