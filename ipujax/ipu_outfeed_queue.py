"""Outfeeds: values sent from inside compiled code, collected on the host while it runs."""

from __future__ import annotations

from ipujax.host import outfeed_queue as _outfeed_queue

__all__ = [
    "IPUOutfeedMode",
    "IPUOutfeedQueue",
]


def __dir__() -> list[str]:
    return __all__


IPUOutfeedMode = _outfeed_queue.IPUOutfeedMode
IPUOutfeedQueue = _outfeed_queue.IPUOutfeedQueue
