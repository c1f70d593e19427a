"""The events of a report, one by one.

A process for each IPU, with a thread for its program: slices in slices, and between them what the
IPU waits for. What overlaps that has threads of its own. Counters tell how much the IPU holds, and
how many IPUs do anything. Arrows lead from a stage's task to the next stage's of the same
micro-batch. The format: "Trace Event Format" by Google.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ipujax.errors import ReportError
from ipujax.report.presentation.perfetto.counters import busy_ipus, live_bytes
from ipujax.report.presentation.perfetto.flows import Arrow, arrows
from ipujax.report.presentation.perfetto.living import live_trace
from ipujax.report.presentation.perfetto.nesting import Nesting
from ipujax.report.presentation.perfetto.texts import (
    PROGRAM,
    Event,
    all_microseconds,
    microseconds,
    text,
    whole,
)
from ipujax.report.presentation.perfetto.tracks import by_ipu, title, tracks_of
from ipujax.report.presentation.perfetto.waits import Waits
from ipujax.version import __version__
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

_Steps = dict[str, np.ndarray]


def write(report: Report, out: TextIO, limit: int | None) -> None:
    """Writes the events; see `Report.to_perfetto`.

    Raises:
      ReportError: (a `ValueError`) a limit that is no positive number.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ReportError(f"limit is a positive number of steps, or None for all; not {limit!r}")
    drawn = _Drawn(report, limit)
    separator = '{"traceEvents":[\n'
    for event in drawn.events():
        out.write(separator + (event if isinstance(event, str) else text(event)))
        separator = ",\n"
    out.write(f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(drawn.about())}}}\n')


class _Drawn:
    """The steps of a report that are drawn: the first ones, by time."""

    def __init__(self, report: Report, limit: int | None) -> None:
        self._report = report
        self._hertz = float(report.target.clock_hz)
        most = len(report.steps) if limit is None else limit
        first, self._before = trace.first_steps(report.steps.trace, most)
        self._steps = machine.Steps(first, report.operations).columns(most)
        live = trace.early(live_trace(report), self._before)
        self._live = machine.Steps(live).columns(most)
        self._tracks = tracks_of(self._steps)
        self._whole = len(self._steps["ipu"]) == len(report.steps)

    def about(self) -> dict[str, Any]:
        """What the file says of itself."""
        report, written = self._report, len(self._steps["ipu"])
        return {
            "ipujax": __version__,
            "program": report.name,
            "target": report.target.name,
            "clock_hz": self._hertz,
            "cycles": int(report.cycles),
            "steps": written,
            "steps_left_out": len(report.steps) - written,
            "note": "modelled, not measured; the spans of the host are by its own clock",
        }

    def events(self) -> Iterator[Event | str]:
        """All of them: what threads are called, slices, counters, arrows, and the host."""
        report, steps, tracks, hertz = self._report, self._steps, self._tracks, self._hertz
        everything = report.num_ipus + 2
        until = report.cycles if self._whole else self._before - 1
        yield from self._names(everything)
        nesting = Nesting(report, steps, Waits(steps, tracks), until)
        own = by_ipu(steps, tracks == PROGRAM)
        for ipu in range(report.num_ipus):
            yield from nesting.events(ipu, own.get(ipu, np.zeros(0, dtype=np.int64)))
        yield from self._beside()
        yield from busy_ipus(steps, everything, hertz)
        yield from live_bytes(report, steps, self._live)
        for number, arrow in enumerate(arrows(steps)):
            yield from self._flow(number, arrow)
        if report.host is not None:
            yield from host_events(report.host.spans, report.num_ipus + 1)

    def _names(self, everything: int) -> Iterator[Event]:
        """What processes and threads are called, and their order."""
        ipus = range(self._report.num_ipus)
        yield _meta("process_name", everything, 0, name="all IPUs")
        yield _meta("process_sort_index", everything, 0, sort_index=-1)
        for ipu in ipus:
            yield _meta("process_name", ipu + 1, 0, name=f"IPU {ipu}")
            yield _meta("process_sort_index", ipu + 1, 0, sort_index=ipu)
        places = {(ipu, PROGRAM) for ipu in ipus}
        places.update(zip(self._steps["ipu"].tolist(), self._tracks.tolist(), strict=True))
        for ipu, thread in sorted(places):
            yield _meta("thread_name", ipu + 1, thread, name=title(thread))
            yield _meta("thread_sort_index", ipu + 1, thread, sort_index=thread)

    def _beside(self) -> Iterator[str]:
        """What overlaps an IPU's program."""
        steps = self._steps
        aside = np.flatnonzero(self._tracks != PROGRAM)
        ends = steps["start_cycle"][aside] + steps["cycles"][aside]
        at = all_microseconds(steps["start_cycle"][aside], self._hertz)
        until = all_microseconds(ends, self._hertz)
        keys = ("ipu", "kind", "name", "cycles")
        rows = zip(*(steps[key][aside].tolist() for key in keys), strict=True)
        for i, (ipu, kind, name, cycles) in enumerate(rows):
            named = text(str(steps["names"][name]) or trace.KINDS[kind])
            line = str(steps["origins"][name])
            args = f'"cycles":{cycles}' + (f',"line":{text(line)}' if line else "")
            what = f'"name":{named},"cat":"{trace.KINDS[kind]}","args":{{{args}}}'
            yield whole(ipu + 1, int(self._tracks[aside[i]]), at[i], until[i], what)

    def _flow(self, number: int, arrow: Arrow) -> Iterator[Event]:
        steps = self._steps
        for mark, step, more in (("s", arrow.source, {}), ("f", arrow.target, {"bp": "e"})):
            yield {
                "ph": mark,
                "name": f"micro-batch {arrow.micro_batch}",
                "cat": "micro-batch",
                "id": number,
                "pid": int(steps["ipu"][step]) + 1,
                "tid": int(self._tracks[step]),
                "ts": microseconds(int(steps["start_cycle"][step]), self._hertz),
                **more,
            }


def _meta(what: str, process: int, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}


def host_events(spans: Any, process: int) -> Iterator[Event]:
    """The host's threads, from the first span on."""
    yield _meta("process_name", process, 0, name="host, by wall clock")
    yield _meta("process_sort_index", process, 0, sort_index=process)
    numbers: dict[str, int] = {}
    for span in spans:
        if span.thread not in numbers:
            numbers[span.thread] = len(numbers) + 1
            yield _meta("thread_name", process, numbers[span.thread], name=span.thread)
        begin = microseconds(span.start)
        yield {
            "ph": "X",
            "name": f"{span.kind} {span.name}".strip(),
            "cat": f"host,{span.kind}",
            "pid": process,
            "tid": numbers[span.thread],
            "ts": begin,
            "dur": round(microseconds(span.start + span.seconds) - begin, 3),
            "args": {},
        }
