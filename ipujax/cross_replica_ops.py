"""Sums and means over replicas, and a marker for values that are equal on all replicas."""

from __future__ import annotations

from ipujax.operators import cross_replica as _cross_replica

__all__ = [
    "assume_equal_across_replicas",
    "cross_replica_mean",
    "cross_replica_sum",
]


def __dir__() -> list[str]:
    return __all__


assume_equal_across_replicas = _cross_replica.assume_equal_across_replicas
cross_replica_mean = _cross_replica.cross_replica_mean
cross_replica_sum = _cross_replica.cross_replica_sum
