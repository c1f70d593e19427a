"""Infeeds: a data set on the host, read element by element from inside compiled loops."""

from __future__ import annotations

from ipujax.host import infeed_queue as _infeed_queue

__all__ = [
    "IPUInfeedQueue",
]


def __dir__() -> list[str]:
    return __all__


IPUInfeedQueue = _infeed_queue.IPUInfeedQueue
