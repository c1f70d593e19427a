"""Trace events: what the system did and when, recorded while somebody wants to know.

with events.record() as trace:
    run(x)
utils.extract_all_types_from_event_trace(trace)
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
import time
from collections.abc import Generator

# Whether anybody records; read on every run of a program, hence a plain module attribute. Read it
# as `events.ACTIVE`: a `from` import would keep the value of that moment.
ACTIVE: bool = False

_lock = threading.Lock()
_traces: list[list[IpuTraceEvent]] = []


class IpuTraceEventType(enum.Enum):
    """What an event says has happened."""

    COMPILE_BEGIN = 0
    COMPILE_END = 1
    HOST_TO_DEVICE_TRANSFER = 2
    DEVICE_TO_HOST_TRANSFER = 3
    LOAD_ENGINE = 4
    EXECUTE = 5


@dataclasses.dataclass(frozen=True)
class IpuTraceEvent:
    """One thing that happened.

    Attributes:
      type: what it was.
      timestamp: when, in seconds since the epoch.
      module: the name of the program that it happened to.
      data: what else there is to say, as text (JSON where it has parts).
    """

    type: IpuTraceEventType
    timestamp: float
    module: str
    data: str = ""


@contextlib.contextmanager
def record() -> Generator[list[IpuTraceEvent]]:
    """Records events of all threads until the block ends; recordings may nest or overlap.

    Yields:
      A list that grows while the block runs, in order of time.
    """
    trace: list[IpuTraceEvent] = []
    _update(add=trace)
    try:
        yield trace
    finally:
        _update(remove=trace)


def recording() -> bool:
    """Whether anybody records."""
    return ACTIVE


def emit(type: IpuTraceEventType, module: str, data: str = "") -> None:
    """Adds an event, happening now, to every recording; does nothing if there is none."""
    if not ACTIVE:
        return
    with _lock:
        event = IpuTraceEvent(type, time.time(), module, data)
        for trace in _traces:
            trace.append(event)


def _update(
    *, add: list[IpuTraceEvent] | None = None, remove: list[IpuTraceEvent] | None = None
) -> None:
    global ACTIVE, _traces
    with _lock:
        # By identity: two empty traces are equal.
        kept = [trace for trace in _traces if trace is not remove]
        _traces = kept if add is None else [*kept, add]
        ACTIVE = bool(_traces)  # pyright: ignore[reportConstantRedefinition]
