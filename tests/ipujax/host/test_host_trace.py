"""What the host does in a real run, as spans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax import host_trace
from ipujax.errors import ConfigTypeError
from ipujax.ground import events
from ipujax.host_trace import HostSpan, HostTrace
from tests.ipujax.feeding import configure

f32 = np.float32
X = np.ones((8, 8), f32)


def product(x: Any) -> Any:
    return x @ x


def kinds(trace: HostTrace) -> list[str]:
    return [span.kind for span in trace.spans]


def only(trace: HostTrace, kind: str) -> HostSpan:
    (found,) = [span for span in trace.spans if span.kind == kind]
    return found


def lies_inside(inner: HostSpan, outer: HostSpan) -> bool:
    slack = 1e-3  # XLA's compilations are timed by another clock
    starts = inner.start >= outer.start - slack
    return starts and inner.start + inner.seconds <= outer.start + outer.seconds + slack


# --- spans of one's own --------------------------------------------------------------------------


def test_a_span_says_what_when_and_where() -> None:
    with host_trace.record() as trace:
        time.sleep(0.01)
        with host_trace.span("outer"), host_trace.span("inner", kind="io"):
            time.sleep(0.02)
    outer, inner = trace.spans
    assert (outer.kind, outer.name, outer.thread) == ("user", "outer", "MainThread")
    assert (inner.kind, inner.name) == ("io", "inner")
    assert outer.start >= 0.01
    assert inner.seconds >= 0.02
    assert lies_inside(inner, outer)


def test_nobody_listens_nothing_is_measured() -> None:
    assert not events.ACTIVE
    with host_trace.span("early"):
        assert events.innermost_open_span() is None
    with host_trace.record() as trace:
        assert events.ACTIVE
    assert not events.ACTIVE
    with host_trace.span("late"):
        pass
    assert trace.spans == ()


def test_a_span_that_fails_is_recorded_and_so_is_a_recording() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        host_trace.record() as trace,
        host_trace.span("broken"),
    ):
        raise ZeroDivisionError
    assert only(trace, "user").name == "broken"
    assert not events.ACTIVE
    assert events.innermost_open_span() is None


def test_recordings_nest_and_overlap() -> None:
    first, second = host_trace.record(), host_trace.record()
    outer = first.__enter__()
    with host_trace.span("of the first"):
        time.sleep(0.01)
    inner = second.__enter__()
    with host_trace.span("of both"):
        pass
    first.__exit__(None, None, None)
    with host_trace.span("of the second"):
        pass
    second.__exit__(None, None, None)
    assert [span.name for span in outer.spans] == ["of the first", "of both"]
    assert [span.name for span in inner.spans] == ["of both", "of the second"]
    assert outer.spans[1].start - inner.spans[0].start >= 0.01  # each counts from its own start


def test_one_that_was_under_way_starts_with_the_recording() -> None:
    with host_trace.record(), host_trace.span("long"):
        time.sleep(0.02)
        late = host_trace.record()
        trace = late.__enter__()
    late.__exit__(None, None, None)
    (span,) = trace.spans
    assert span.start == 0
    assert span.seconds < 0.02


def test_all_threads_are_recorded_and_the_trace_is_read_meanwhile() -> None:
    def work() -> None:
        for _ in range(100):
            with host_trace.span("step"):
                pass

    with host_trace.record() as trace:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert len(trace.spans) <= 400
        for thread in threads:
            thread.join()
    assert len(trace.spans) == 400
    assert {span.thread for span in trace.spans} == {f"worker {i}" for i in range(4)}
    assert [s.start for s in trace.spans] == sorted(s.start for s in trace.spans)


def test_events_and_spans_do_not_meet() -> None:
    with events.record() as seen, host_trace.record() as trace:
        events.emit(events.IpuTraceEventType.EXECUTE, "module")
        with host_trace.span("mine"):
            pass
    assert [event.module for event in seen] == ["module"]
    assert [span.name for span in trace.spans] == ["mine"]
    with events.record():
        assert events.ACTIVE
        assert not events.is_anyone_recording_spans()


def test_seconds_count_for_the_innermost_span() -> None:
    trace = HostTrace(
        [
            HostSpan("execute", "f", 0.0, 10.0, "a"),
            HostSpan("compile", "f", 1.0, 4.0, "a"),
            HostSpan("load", "f", 2.0, 1.0, "a"),
            HostSpan("load", "f", 6.0, 1.0, "a"),
            HostSpan("feed", "q", 0.5, 8.0, "b"),
            HostSpan("execute", "f", 10.0, 2.0, "a"),
        ]
    )
    assert trace.seconds == {"feed": 8.0, "execute": 7.0, "compile": 3.0, "load": 2.0}
    assert list(trace.seconds) == ["feed", "execute", "compile", "load"]
    assert repr(trace) == "<HostTrace of 6 spans: 2 execute, 2 load, 1 feed, 1 compile>"
    assert str(trace).splitlines()[1].split() == ["feed", "1", "8.0000"]


def test_an_empty_trace() -> None:
    assert repr(HostTrace()) == "<HostTrace of 0 spans>"
    assert str(HostTrace()).split() == ["kind", "spans", "seconds"]
    assert HostTrace().seconds == {}


@pytest.mark.parametrize("arguments", [{"name": 1}, {"name": "a", "kind": None}])
def test_names_are_texts(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigTypeError, match="texts"):
        host_trace.span(**arguments)


# --- what ipujax does ----------------------------------------------------------------------------


def test_a_single_kernel_is_traced_compiled_and_executed_inside_its_first_call() -> None:
    function = ipu.compile(product)
    with host_trace.record() as trace:
        function(X)
        function(X)
    first, second = (span for span in trace.spans if span.kind == "execute")
    for kind in ("trace", "lower", "load", "compile"):
        assert only(trace, kind).name == "product"
        assert lies_inside(only(trace, kind), first)
    assert second.start >= first.start + first.seconds


def test_recording_compiles_nothing_that_was_compiled() -> None:
    function = ipu.compile(product)
    function(X)
    for _ in range(2):
        with host_trace.record() as trace:
            function(X)
        assert kinds(trace) == ["execute"]
    traced: list[int] = []
    counted = ipu.compile(lambda x: traced.append(1) or x + 1)
    with host_trace.record():
        counted(X)
    counted(X)
    assert len(traced) == 1


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_ahead_of_time(engine: str) -> None:
    with host_trace.record() as trace:
        executable = ipu.compile(product, engine=engine).lower(X).compile()
        assert kinds(trace)[:3] == ["trace", "lower", "compile"]
        executable(X)
        executable(X)
    assert kinds(trace).count("execute") == 2
    assert [span.kind for span in trace.spans if span.name == "product"].count("load") == 1


def test_executing_takes_until_the_results_are_there() -> None:
    configure(1)

    def slow(x: Any) -> Any:
        def wait(y: np.ndarray) -> np.ndarray:
            time.sleep(0.05)
            return y

        with ipu.scopes.outside_compilation_scope():
            import jax

            return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    function = ipu.compile(slow)
    function(X)
    with host_trace.record() as trace:
        function(X)
    assert only(trace, "execute").seconds >= 0.05


def queues(
    elements: Callable[[], Iterator[np.ndarray]],
) -> tuple[Any, Any, Any]:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total: Any, element: Any) -> Any:
        outfeed.enqueue(total)
        return total + element.sum()

    program = ipu.compile(lambda total: ipu.loops.repeat(6, body, [total], infeed), name="loop")
    return infeed, outfeed, program


def test_a_loop_with_queues() -> None:
    def elements() -> Iterator[np.ndarray]:
        for _ in range(6):
            time.sleep(0.003)
            yield np.ones(3, f32)

    infeed, outfeed, program = queues(elements)
    with host_trace.record() as trace:
        infeed.initializer()
        program(np.float32(0))
        outfeed.dequeue()
    execute = only(trace, "execute")
    feeds = [span for span in trace.spans if span.kind == "feed"]
    assert {span.name for span in feeds} == {infeed.name}
    assert {span.thread for span in feeds} == {f"ipujax-{infeed.name}"}
    # Tracing has read the first element.
    assert 5 * 0.003 <= sum(span.seconds for span in feeds) <= execute.seconds
    assert only(trace, "dequeue").name == outfeed.name
    assert only(trace, "dequeue").start >= execute.start + execute.seconds


def test_what_fails_is_recorded() -> None:
    infeed, _, program = queues(lambda: iter([np.ones(3, f32)]))
    infeed.initializer()
    with pytest.raises(ipu.errors.OutOfRangeError), host_trace.record() as trace:
        program(np.float32(0))
    assert only(trace, "execute").name == "loop"

    def broken(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), host_trace.record() as trace:
        ipu.compile(broken)(X)
    assert "trace" in kinds(trace)
    assert events.innermost_open_span() is None


# --- beside a report -----------------------------------------------------------------------------


def test_a_report_with_what_the_host_did() -> None:
    lowered = ipu.compile(product).lower(X)
    executable = lowered.compile()
    with host_trace.record() as trace:
        executable(X)
    report = executable.report(host=trace)
    assert report.host is trace
    assert report.profile is lowered.report().profile
    assert lowered.report().host is None
    assert lowered.report("ipu21", host=trace).target.name == "ipu21"


def test_a_trace_of_another_kind() -> None:
    lowered = ipu.compile(product).lower(X)
    with events.record() as trace, pytest.raises(ConfigTypeError, match="HostTrace"):
        lowered.report(host=trace)  # pyright: ignore[reportArgumentType]


def test_threads_of_one_name_are_told_apart() -> None:
    def work() -> None:
        with ipu.host_trace.span("work"):
            together.wait()

    together = threading.Barrier(2)
    with ipu.host_trace.record() as trace:
        threads = [threading.Thread(target=work, name="worker") for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(span.thread for span in trace.spans) == ["worker", "worker (2)"]
    assert trace.seconds["user"] == pytest.approx(sum(span.seconds for span in trace.spans))
