"""Recording trace events."""

from __future__ import annotations

import threading
import time

from ipujax.events import IpuTraceEventType as Type
from ipujax.ground import events


def test_nothing_is_kept_unless_somebody_records():
    assert not events.is_anyone_recording_events()
    events.emit(Type.EXECUTE, "module")
    with events.record() as trace:
        assert events.is_anyone_recording_events()
        assert events.ACTIVE
    assert trace == []
    assert not events.ACTIVE


def test_events_say_what_when_and_where():
    before = time.time()
    with events.record() as trace:
        events.emit(Type.COMPILE_BEGIN, "module")
        events.emit(Type.EXECUTE, "module", "data")
    assert [(event.type, event.module, event.data) for event in trace] == [
        (Type.COMPILE_BEGIN, "module", ""),
        (Type.EXECUTE, "module", "data"),
    ]
    assert before <= trace[0].timestamp <= trace[1].timestamp <= time.time()


def test_recordings_overlap():
    with events.record() as outer:
        with events.record() as inner:
            events.emit(Type.EXECUTE, "both")
        events.emit(Type.EXECUTE, "outer")
    assert [event.module for event in inner] == ["both"]
    assert [event.module for event in outer] == ["both", "outer"]


def test_events_of_all_threads_are_recorded():
    def work() -> None:
        for _ in range(200):
            events.emit(Type.EXECUTE, threading.current_thread().name)

    with events.record() as trace:
        threads = [threading.Thread(target=work, name=str(i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(trace) == 800
    assert [event.timestamp for event in trace] == sorted(event.timestamp for event in trace)


def test_types_of_events():
    assert {member.name for member in Type} == {
        "COMPILE_BEGIN",
        "COMPILE_END",
        "LOAD_ENGINE",
        "EXECUTE",
        "HOST_TO_DEVICE_TRANSFER",
        "DEVICE_TO_HOST_TRANSFER",
    }


def test_compiling_records_the_program() -> None:
    import ipujax as ipu

    with ipu.events.record() as trace:
        ipu.compile(lambda x: x + 1)(1.0)
    assert "execute ipu 0" in ipu.utils.extract_all_strings_from_event_trace(trace)
