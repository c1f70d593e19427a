"""What the system does and when, told to whoever listens: events at a moment, spans of time.

For example::

    with events.record() as trace:
        run(x)
    utils.extract_all_types_from_event_trace(trace)

`host_trace` records the spans. While nobody listens, all of this is one look at `ACTIVE`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ipujax.checks.arguments import Checks
from ipujax.errors import ConfigError, ConfigTypeError

_check = Checks(ConfigTypeError, ConfigError)

__all__ = ["IpuTraceEvent", "IpuTraceEventType", "Span", "record"]


def __dir__() -> list[str]:
    return __all__


# Whether anybody listens; read on every run of a program, hence a plain module attribute. Read it
# as `events.ACTIVE`: a `from` import would keep the value of that moment.
ACTIVE: bool = False


class IpuTraceEventType(enum.Enum):
    """What an event says has happened."""

    COMPILE_BEGIN = 0
    COMPILE_END = 1
    HOST_TO_DEVICE_TRANSFER = 2
    DEVICE_TO_HOST_TRANSFER = 3
    LOAD_ENGINE = 4
    EXECUTE = 5


@_check.guard
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


@_check.guard
@dataclasses.dataclass(eq=False)
class Span:
    """Something that a thread of the host did for a while.

    Attributes:
      kind: what it was: one of `host_trace.KINDS`, or a user's own word.
      name: of what it was done to.
      begin: `time.perf_counter()` at its start.
      end: and at its end; before that, the same as `begin`.
      thread: that did it; several may have one name.
      told: whether listeners will hear of it.
    """

    kind: str
    name: str
    begin: float
    end: float
    thread: threading.Thread
    told: bool = True


Told = TypeVar("Told", IpuTraceEvent, Span)

_lock = threading.Lock()
_listeners: dict[type, tuple[Callable[[Any], None], ...]] = {IpuTraceEvent: (), Span: ()}
_local = threading.local()


@contextlib.contextmanager
def record() -> Generator[list[IpuTraceEvent]]:
    """Records events of all threads until the block ends; recordings may nest or overlap.

    Yields:
      A list that grows while the block runs, in order of time.
    """
    trace: list[IpuTraceEvent] = []
    with listening(IpuTraceEvent, trace.append):
        yield trace


@contextlib.contextmanager
def listening(kind: type[Told], listener: Callable[[Told], None]) -> Generator[None]:
    """Has a listener told of every event, or of every span when it ends, until the block ends."""

    def tell(what: Told) -> None:  # a name of its own: one listener may listen twice
        listener(what)

    with _lock:
        _listeners[kind] = (*_listeners[kind], tell)
        _look()
    try:
        yield
    finally:
        with _lock:
            _listeners[kind] = tuple(other for other in _listeners[kind] if other is not tell)
            _look()


def recording() -> bool:
    """Whether anybody records events."""
    return bool(_listeners[IpuTraceEvent])


def timing() -> bool:
    """Whether anybody records spans."""
    return bool(_listeners[Span])


def emit(type: IpuTraceEventType, module: str, data: str = "") -> None:
    """Adds an event, happening now, to every recording; does nothing if there is none."""
    if not recording():
        return
    with _lock:
        event = IpuTraceEvent(type, time.time(), module, data)
        for tell in _listeners[IpuTraceEvent]:
            tell(event)


def span(kind: str, name: str) -> contextlib.AbstractContextManager[Span]:
    """What the block does is a span, also if it fails; nothing is measured if nobody listens."""
    return _measured(kind, name) if ACTIVE and timing() else _NOBODY_LISTENS


def enclosing() -> Span | None:
    """The innermost span that is open in this thread, if any."""
    spans = _open_spans()
    return spans[-1] if spans else None


@contextlib.contextmanager
def _measured(kind: str, name: str) -> Generator[Span]:
    spans, begin = _open_spans(), time.perf_counter()
    new = Span(kind, name, begin, begin, threading.current_thread())
    spans.append(new)
    try:
        yield new
    finally:
        spans.remove(new)
        new.end = time.perf_counter()
        if new.told:
            tell_span(new)


def tell_span(span: Span) -> None:
    """Tells the listeners of a span that has ended."""
    for tell in _listeners[Span]:
        tell(span)


def _open_spans() -> list[Span]:
    if not hasattr(_local, "spans"):
        _local.spans = []
    return _local.spans


def _look() -> None:
    global ACTIVE
    ACTIVE = any(_listeners.values())  # pyright: ignore[reportConstantRedefinition]


_NOBODY_LISTENS = contextlib.nullcontext(Span("", "", 0.0, 0.0, threading.main_thread()))
