"""Trace points of the original's profiling library."""

from __future__ import annotations

import threading

import pytest

from ipujax import host_trace, libpvti
from ipujax.errors import ConfigTypeError


class Model:
    def fit(self, steps: int) -> int:
        return steps + 1


def test_trace_points_are_spans() -> None:
    channel = libpvti.createTraceChannel("training")

    @libpvti.instrument_fn(channel)
    def read() -> int:
        return 3

    @libpvti.instrument_fn(channel, label="a write")
    def write() -> int:
        return 4

    model = libpvti.instrument(Model(), ["fit"], channel)
    with host_trace.record() as trace:
        with libpvti.Tracepoint(channel, "epoch"):
            assert (read(), write(), model.fit(6)) == (3, 4, 7)
    names = [span.name for span in trace.spans]
    assert names == ["training.epoch", "training.read", "training.a write", "training.fit"]
    epoch, *inner = trace.spans
    assert all(epoch.start <= span.start for span in inner)
    assert sum(span.seconds for span in inner) <= epoch.seconds


def test_a_trace_point_is_entered_again_and_in_recordings_that_begin_later() -> None:
    epoch = libpvti.Tracepoint(libpvti.createTraceChannel("training"), "epoch")
    with host_trace.record() as trace:
        for _ in range(2):
            with epoch:
                pass
        with epoch, epoch:
            pass
    assert [span.name for span in trace.spans] == ["training.epoch"] * 4


def test_what_is_no_channel_is_told() -> None:
    with pytest.raises(ConfigTypeError, match="channel of a trace point"):
        libpvti.Tracepoint("training", "epoch")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigTypeError, match="name of a trace channel"):
        libpvti.createTraceChannel(3)  # pyright: ignore[reportArgumentType]


def test_threads_may_share_a_trace_point() -> None:
    point = libpvti.Tracepoint(libpvti.createTraceChannel("shared"), "work")
    is_inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with point:
            is_inside.set()
            may_leave.wait(10)

    worker = threading.Thread(target=work, name="worker")
    with host_trace.record() as trace:
        with point:
            worker.start()
            is_inside.wait(10)
        may_leave.set()
        worker.join()
    ends = {span.thread: span.start + span.seconds for span in trace.spans}
    assert len(trace.spans) == len(ends) == 2
    assert ends["worker"] > ends[threading.current_thread().name]
