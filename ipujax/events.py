"""Events and spans of time that the system reports to listeners: compilation, transfers, runs.

For example::

    with events.record() as trace:
        run(x)
    utils.extract_all_types_from_event_trace(trace)

`host_trace` records the spans. While nobody listens, all of this is one look at `ACTIVE`.
"""

from __future__ import annotations

from ipujax.ground import events as _events

__all__ = [
    "IpuTraceEvent",
    "IpuTraceEventType",
    "Span",
    "record",
]


def __dir__() -> list[str]:
    return __all__


IpuTraceEvent = _events.IpuTraceEvent
IpuTraceEventType = _events.IpuTraceEventType
Span = _events.Span
record = _events.record
