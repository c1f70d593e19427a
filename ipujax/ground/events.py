"""Events and spans of time that the system reports to listeners: compilation, transfers, runs."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ipujax.ground.argument_checks import Checks
from ipujax.ground.errors import ConfigError, ConfigTypeError

_check = Checks(ConfigTypeError, ConfigError)


# Whether anybody listens; read on every run of a program, hence a plain module attribute. Read it
# as `events.ACTIVE`: a `from` import would keep the value of that moment.
ACTIVE: bool = False


class IpuTraceEventType(enum.Enum):
    """The kind of an event."""

    COMPILE_BEGIN = 0
    COMPILE_END = 1
    HOST_TO_DEVICE_TRANSFER = 2
    DEVICE_TO_HOST_TRANSFER = 3
    LOAD_ENGINE = 4
    EXECUTE = 5


@_check.guard
@dataclasses.dataclass(frozen=True)
class IpuTraceEvent:
    """An event of the system: something that happened to a program at a time.

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
    """An activity of a host thread, from its begin to its end.

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
    with call_listener_in_block(IpuTraceEvent, trace.append):
        yield trace


@contextlib.contextmanager
def call_listener_in_block(kind: type[Told], listener: Callable[[Told], None]) -> Generator[None]:
    """Calls a listener for every event, or for every span that ends, until the block ends."""

    def call_listener(
        event_or_span: Told,
    ) -> None:  # a name of its own: one listener may listen twice
        listener(event_or_span)

    with _lock:
        _listeners[kind] = (*_listeners[kind], call_listener)
        _note_whether_anyone_listens()
    try:
        yield
    finally:
        with _lock:
            _listeners[kind] = tuple(
                registered for registered in _listeners[kind] if registered is not call_listener
            )
            _note_whether_anyone_listens()


def is_anyone_recording_events() -> bool:
    """Returns whether anybody records events."""
    return bool(_listeners[IpuTraceEvent])


def is_anyone_recording_spans() -> bool:
    """Returns whether anybody records spans."""
    return bool(_listeners[Span])


def emit(type: IpuTraceEventType, module: str, data: str = "") -> None:
    """Adds an event, happening now, to every recording; does nothing if there is none."""
    if not is_anyone_recording_events():
        return
    with _lock:
        event = IpuTraceEvent(type, time.time(), module, data)
        for tell in _listeners[IpuTraceEvent]:
            tell(event)


def span(kind: str, name: str) -> contextlib.AbstractContextManager[Span]:
    """Records the block as a span, also if it fails; measures nothing without listeners."""
    return _measure_span(kind, name) if ACTIVE and is_anyone_recording_spans() else _NOBODY_LISTENS


def innermost_open_span() -> Span | None:
    """Returns the innermost span that is open in this thread, or None."""
    spans = _open_spans()
    return spans[-1] if spans else None


@contextlib.contextmanager
def _measure_span(kind: str, name: str) -> Generator[Span]:
    spans, begin = _open_spans(), time.perf_counter()
    new = Span(kind, name, begin, begin, threading.current_thread())
    spans.append(new)
    try:
        yield new
    finally:
        spans.remove(new)
        new.end = time.perf_counter()
        if new.told:
            report_span_to_listeners(new)


def report_span_to_listeners(span: Span) -> None:
    """Reports a span that has ended to the listeners."""
    for tell in _listeners[Span]:
        tell(span)


def _open_spans() -> list[Span]:
    if not hasattr(_local, "spans"):
        _local.spans = []
    return _local.spans


def _note_whether_anyone_listens() -> None:
    global ACTIVE
    ACTIVE = any(_listeners.values())  # pyright: ignore[reportConstantRedefinition]


_NOBODY_LISTENS = contextlib.nullcontext(Span("", "", 0.0, 0.0, threading.main_thread()))
