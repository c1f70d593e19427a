"""Records what the host does in a real run, and how long it takes by wall clock.

For example::

    with ipu.host_trace.record() as trace:
        with ipu.host_trace.span("an epoch"):
            step(x)
    print(trace)                                      # seconds by kind
    step.lower(x).report(host=trace).to_perfetto("trace.json.gz")
"""

from __future__ import annotations

from ipujax.ground import host_trace as _host_trace

__all__ = [
    "KINDS",
    "HostSpan",
    "HostTrace",
    "record",
    "span",
]


def __dir__() -> list[str]:
    return __all__


KINDS = _host_trace.KINDS
HostSpan = _host_trace.HostSpan
HostTrace = _host_trace.HostTrace
record = _host_trace.record
span = _host_trace.span
