"""Writes the trace events of a report, one by one.

A process for each IPU, with a thread for its program: slices in slices, and between them what the
IPU waits for. Overlapping steps have threads of their own. Counters show how much the IPU holds,
and how many IPUs work. Arrows lead from a stage's task to the next stage's of the same
micro-batch. The format: "Trace Event Format" by Google.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ipujax.ground import ReportError, __version__
from ipujax.report.presentation.perfetto.counter_tracks import count_busy_ipus, count_live_bytes
from ipujax.report.presentation.perfetto.event_text import (
    PROGRAM,
    Event,
    complete_slice_event,
    convert_all_to_microseconds,
    convert_to_microseconds,
    to_compact_json,
)
from ipujax.report.presentation.perfetto.flows import Arrow, find_micro_batch_arrows
from ipujax.report.presentation.perfetto.live_bytes import rename_steps_by_liveness
from ipujax.report.presentation.perfetto.nesting import Nesting
from ipujax.report.presentation.perfetto.tracks import (
    assign_tracks,
    group_steps_by_ipu,
    track_title,
)
from ipujax.report.presentation.perfetto.waits import Waits
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report


def write_trace_events(report: Report, out: TextIO, limit: int | None) -> None:
    """Writes the trace events of a report; see `Report.to_perfetto`.

    Raises:
      ReportError: (a `ValueError`) a limit that is no positive number.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ReportError(f"limit is a positive number of steps, or None for all; not {limit!r}")
    drawing = _Drawing(report, limit)
    separator = '{"traceEvents":[\n'
    for event in drawing.list_events():
        out.write(separator + (event if isinstance(event, str) else to_compact_json(event)))
        separator = ",\n"
    out.write(
        f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(drawing.describe_trace_file())}}}\n'
    )


class _Drawing:
    """The first steps of a report by time, as they are drawn."""

    def __init__(self, report: Report, limit: int | None) -> None:
        self._report = report
        self._hertz = float(report.target.clock_hz)
        most = len(report.steps) if limit is None else limit
        first, self._before = trace.first_steps(report.steps.trace, most)
        self._steps = machine.Steps(first, report.operations).columns(most)
        live = trace.steps_before(rename_steps_by_liveness(report), self._before)
        self._live = machine.Steps(live).columns(most)
        self._tracks = assign_tracks(self._steps)
        self._whole = len(self._steps["ipu"]) == len(report.steps)

    def describe_trace_file(self) -> dict[str, Any]:
        """Returns the metadata of the file."""
        report, num_steps = self._report, len(self._steps["ipu"])
        return {
            "ipujax": __version__,
            "program": report.name,
            "target": report.target.name,
            "clock_hz": self._hertz,
            "cycles": int(report.cycles),
            "steps": num_steps,
            "steps_left_out": len(report.steps) - num_steps,
            "note": "modelled, not measured; the spans of the host are by its own clock",
        }

    def list_events(self) -> Iterator[Event | str]:
        """Yields all events: names of threads, slices, counters, arrows, and the host's spans."""
        report, steps, tracks, hertz = self._report, self._steps, self._tracks, self._hertz
        process_of_all_ipus = report.num_ipus + 2
        last_cycle = report.cycles if self._whole else self._before - 1
        yield from self._name_processes_and_threads(process_of_all_ipus)
        nesting = Nesting(report, steps, Waits(steps, tracks), last_cycle)
        steps_of_ipu = group_steps_by_ipu(steps, tracks == PROGRAM)
        for ipu in range(report.num_ipus):
            yield from nesting.list_slices_of_ipu(
                ipu, steps_of_ipu.get(ipu, np.zeros(0, dtype=np.int64))
            )
        yield from self._draw_overlapping_steps()
        yield from count_busy_ipus(steps, process_of_all_ipus, hertz)
        yield from count_live_bytes(report, steps, self._live)
        for number, arrow in enumerate(find_micro_batch_arrows(steps)):
            yield from self._draw_flow_arrow(number, arrow)
        if report.host is not None:
            yield from list_host_span_events(report.host.spans, report.num_ipus + 1)

    def _name_processes_and_threads(self, process_of_all_ipus: int) -> Iterator[Event]:
        """Yields the events that name and order processes and threads."""
        ipus = range(self._report.num_ipus)
        yield _metadata_event("process_name", process_of_all_ipus, 0, name="all IPUs")
        yield _metadata_event("process_sort_index", process_of_all_ipus, 0, sort_index=-1)
        for ipu in ipus:
            yield _metadata_event("process_name", ipu + 1, 0, name=f"IPU {ipu}")
            yield _metadata_event("process_sort_index", ipu + 1, 0, sort_index=ipu)
        threads = {(ipu, PROGRAM) for ipu in ipus}
        threads.update(zip(self._steps["ipu"].tolist(), self._tracks.tolist(), strict=True))
        for ipu, thread in sorted(threads):
            yield _metadata_event("thread_name", ipu + 1, thread, name=track_title(thread))
            yield _metadata_event("thread_sort_index", ipu + 1, thread, sort_index=thread)

    def _draw_overlapping_steps(self) -> Iterator[str]:
        """Yields the slices of steps that overlap an IPU's program."""
        steps = self._steps
        step_numbers = np.flatnonzero(self._tracks != PROGRAM)
        ends = steps["start_cycle"][step_numbers] + steps["cycles"][step_numbers]
        at = convert_all_to_microseconds(steps["start_cycle"][step_numbers], self._hertz)
        ends_at = convert_all_to_microseconds(ends, self._hertz)
        keys = ("ipu", "kind", "name", "cycles")
        rows = zip(*(steps[key][step_numbers].tolist() for key in keys), strict=True)
        for i, (ipu, kind, name, cycles) in enumerate(rows):
            name_json = to_compact_json(str(steps["names"][name]) or trace.KINDS[kind])
            line = str(steps["origins"][name])
            args = f'"cycles":{cycles}' + (f',"line":{to_compact_json(line)}' if line else "")
            fields = f'"name":{name_json},"cat":"{trace.KINDS[kind]}","args":{{{args}}}'
            yield complete_slice_event(
                ipu + 1, int(self._tracks[step_numbers[i]]), at[i], ends_at[i], fields
            )

    def _draw_flow_arrow(self, number: int, arrow: Arrow) -> Iterator[Event]:
        steps = self._steps
        for phase_letter, step, binding in (
            ("s", arrow.source, {}),
            ("f", arrow.target, {"bp": "e"}),
        ):
            yield {
                "ph": phase_letter,
                "name": f"micro-batch {arrow.micro_batch}",
                "cat": "micro-batch",
                "id": number,
                "pid": int(steps["ipu"][step]) + 1,
                "tid": int(self._tracks[step]),
                "ts": convert_to_microseconds(int(steps["start_cycle"][step]), self._hertz),
                **binding,
            }


def _metadata_event(metadata_name: str, process: int, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": metadata_name, "pid": process, "tid": thread, "args": args}


def list_host_span_events(spans: Any, process: int) -> Iterator[Event]:
    """Yields the events of the host's threads, from the first span on."""
    yield _metadata_event("process_name", process, 0, name="host, by wall clock")
    yield _metadata_event("process_sort_index", process, 0, sort_index=process)
    numbers: dict[str, int] = {}
    for span in spans:
        if span.thread not in numbers:
            numbers[span.thread] = len(numbers) + 1
            yield _metadata_event("thread_name", process, numbers[span.thread], name=span.thread)
        begin = convert_to_microseconds(span.start)
        yield {
            "ph": "X",
            "name": f"{span.kind} {span.name}".strip(),
            "cat": f"host,{span.kind}",
            "pid": process,
            "tid": numbers[span.thread],
            "ts": begin,
            "dur": round(convert_to_microseconds(span.start + span.seconds) - begin, 3),
            "args": {},
        }
