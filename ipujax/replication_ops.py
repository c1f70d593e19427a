"""The index of a replica, and division by the number of replicas."""

from __future__ import annotations

from ipujax.operators import replication as _replication

__all__ = [
    "replication_index",
    "replication_normalise",
]


def __dir__() -> list[str]:
    return __all__


replication_index = _replication.replication_index
replication_normalise = _replication.replication_normalise
