"""Records what the host does in a real run, and how long it takes by wall clock."""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import threading
import time
from collections.abc import Callable, Generator, Iterable

from ipujax.ground import events
from ipujax.ground.argument_checks import Checks
from ipujax.ground.errors import ConfigError, ConfigTypeError
from lowering import limit_dir_to

_check = Checks(ConfigTypeError, ConfigError)

KINDS = ("trace", "lower", "compile", "load", "feed", "execute", "dequeue", "report")
"""The kinds of spans that ipujax records; see `record`."""

# The event of JAX for a compilation by XLA, or a hit in its cache.
_XLA_COMPILED = "/jax/core/compile/backend_compile_duration"


@_check.guard
@dc.dataclass(frozen=True)
class HostSpan:
    """An activity of a host thread with its start and duration.

    Attributes:
      kind: one of `KINDS`, or what was passed to `span`.
      name: what it was done to: a program, a queue, an IPU, or the user's own word.
      start: in seconds since the recording began; 0 for one that another recording already knew.
      seconds: how long it took.
      thread: the name of the thread that did it, with a number if there are several of that name.
    """

    kind: str
    name: str
    start: float
    seconds: float
    thread: str


@_check.guard
@limit_dir_to()
class HostTrace:
    """The spans that were recorded of the host; may be read while recording goes on.

    Args:
      spans: what it holds to begin with.
    """

    def __init__(self, spans: Iterable[HostSpan] = ()):
        self._spans = list(spans)

    @property
    def spans(self) -> tuple[HostSpan, ...]:
        """The spans that have ended by now, in order of their starts, outer before inner."""
        return tuple(sorted(self._spans[:], key=lambda span: (span.start, -span.seconds)))

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that threads spent on each kind, most first.

        What lies inside another span of its thread counts for the inner one alone. Several threads
        may spend more seconds than pass.
        """
        total: dict[str, float] = collections.defaultdict(float)
        open_spans: dict[str, list[HostSpan]] = {}
        for span in self.spans:
            outer = open_spans.setdefault(span.thread, [])
            while outer and outer[-1].start + outer[-1].seconds <= span.start:
                outer.pop()
            if outer:
                total[outer[-1].kind] -= span.seconds
            total[span.kind] += span.seconds
            outer.append(span)
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def __repr__(self) -> str:
        kinds = collections.Counter(span.kind for span in self.spans)
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        return f"<HostTrace of {kinds.total()} spans{': ' if counted else ''}{counted}>"

    def __str__(self) -> str:
        """Returns a small table of spans and seconds by kind."""
        spans = self.spans
        counts = collections.Counter(span.kind for span in spans)
        width = max(map(len, ["kind", *counts]))
        lines = [f"{'kind':{width}}  {'spans':>7}  {'seconds':>9}"]
        for kind, seconds in self.seconds.items():
            lines.append(f"{kind:{width}}  {counts[kind]:>7}  {seconds:>9.4f}")
        return "\n".join(lines)

    def add(self, span: HostSpan) -> None:
        """Adds a span that has ended; any thread may."""
        self._spans.append(span)


@contextlib.contextmanager
def record() -> Generator[HostTrace]:
    """Records what all threads do until the block ends; recordings may nest or overlap.

    While anybody records, a call of a compiled function returns when its results are ready, so
    that its `execute` span is as long as it took; what JAX would have done beside it waits.

    Yields:
      A trace that grows while the block runs. The spans are of these kinds:

      * `trace`: JAX traces a function; `lower`: it becomes a Program;
      * `compile`: XLA compiles it or, inside `execute`, a kernel of it that is needed first then;
      * `load`: devices are attached, and arrays are brought to them;
      * `feed`: a data set makes elements, mostly in a thread of its own;
      * `execute`: one call, until its results are ready; the first one of a function that runs as
        a single kernel has its `trace`, `lower` and `compile` inside;
      * `dequeue`: results are taken from an outfeed, waiting for them included;
      * `report`: a report is modelled and written, as `POPLAR_ENGINE_OPTIONS` asks.

      A span that fails is recorded as well; one that has not ended when the recording does is not.
    """
    trace, threads, began = HostTrace(), _ThreadNames(), time.perf_counter()

    def add_span(span: events.Span) -> None:
        start = max(span.begin, began)
        thread = threads.unique_name(span.thread)
        trace.add(HostSpan(span.kind, span.name, start - began, span.end - start, thread))

    with events.call_listener_in_block(events.Span, add_span), _record_compilations(add_span):
        yield trace


@_check.guard
def span(name: str, kind: str = "user") -> contextlib.AbstractContextManager[events.Span]:
    """Records the block as a span of every recording that is going on.

    Args:
      name: what to call it.
      kind: a word by which spans are told apart in pictures and sums.

    Raises:
      ConfigTypeError: (a `TypeError`) a name or kind that is no text.
    """
    _check.require_text(name, "the name of a span")
    _check.require_text(kind, "the kind of a span")
    return events.span(kind, name)


def require_host_trace(trace: object) -> HostTrace:
    """Returns a host trace, or raises an error if it is none.

    Raises:
      ConfigTypeError: (a `TypeError`) otherwise.
    """
    expected = "the HostTrace that `with ipu.host_trace.record() as trace:` gives"
    return _check.require_instance(trace, HostTrace, "host", expected)


class _ThreadNames:
    """A registry of unique names for threads, whose own names may be equal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[threading.Thread, str] = {}
        self._counts = collections.Counter[str]()

    def unique_name(self, thread: threading.Thread) -> str:
        """Returns the thread's own name, with a number if another thread had it first."""
        with self._lock:
            if thread not in self._names:
                self._counts[thread.name] += 1
                number = self._counts[thread.name]
                self._names[thread] = f"{thread.name} ({number})" if number > 1 else thread.name
            return self._names[thread]


@contextlib.contextmanager
def _record_compilations(keep: Callable[[events.Span], None]) -> Generator[None]:
    """Records a span of every compilation by XLA; JAX reports them when they end."""
    import jax.monitoring  # late: reading a report needs no JAX

    def record_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
        enclosing_span = events.innermost_open_span()
        if event != _XLA_COMPILED or (
            enclosing_span is not None and enclosing_span.kind == "compile"
        ):
            return
        end_time = time.perf_counter()
        name, begin = str(kwargs.get("fun_name", "")), end_time - duration_secs
        if enclosing_span is not None:  # JAX's clock is another one: what is inside shall look so
            name, begin = enclosing_span.name, max(begin, enclosing_span.begin)
        keep(events.Span("compile", name, begin, end_time, threading.current_thread()))

    jax.monitoring.register_event_duration_secs_listener(record_compilation)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(record_compilation)
