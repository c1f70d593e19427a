"""A report as Chrome's trace events: what each IPU does when, for ui.perfetto.dev.

A process for each IPU, with a thread for each kind of work, since kinds may overlap and slices of
one thread may not. Arrows lead from a stage's task to the next stage's of the same micro-batch. The
format: "Trace Event Format" by Google.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ipujax.errors import ReportError
from ipujax.report.presentation.flows import Arrow, arrows
from ipujax.version import __version__
from lowering import trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

_Event = dict[str, Any]

_TITLES = ("compute", "exchange", "sync", "inter-IPU", "host", "streaming memory")
_LANES = 1000  # thread numbers for each kind


def write(report: Report, out: TextIO, limit: int | None) -> None:
    """Writes the events one by one; see `Report.to_perfetto`.

    Raises:
      ReportError: (a `ValueError`) a limit that is no positive number.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ReportError(f"limit is a positive number of steps, or None for all; not {limit!r}")
    steps = report.steps.columns(limit)
    separator = '{"traceEvents":[\n'
    for event in _events(report, steps):
        out.write(separator + (event if isinstance(event, str) else _text(event)))
        separator = ",\n"
    other = _about(report, len(steps["ipu"]))
    out.write(f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(other)}}}\n')


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _about(report: Report, written: int) -> dict[str, Any]:
    return {
        "ipujax": __version__,
        "program": report.name,
        "target": report.target.name,
        "clock_hz": float(report.target.clock_hz),
        "cycles": int(report.cycles),
        "steps": written,
        "steps_left_out": len(report.steps) - written,
        "note": "modelled, not measured; the spans of the host are by its own clock",
    }


def _events(report: Report, steps: dict[str, np.ndarray]) -> Iterator[_Event | str]:
    threads = _threads(steps)
    hertz = float(report.target.clock_hz)
    yield from _names(report, steps, threads)
    yield from _slices(steps, threads, hertz)
    for number, arrow in enumerate(arrows(steps)):
        yield from _flow(number, arrow, steps, threads, hertz)
    if report.host is not None:
        yield from host_events(report.host.spans, report.num_ipus + 1)


def _microseconds(ticks: float, hertz: float = 1.0) -> float:
    """What a clock counts, by default seconds, as microseconds.

    Starts and ends are rounded down to the nanoseconds in which viewers count, so that what does
    not overlap in ticks does not overlap in them, and what lies in one another still does.
    """
    return int(ticks * 1e9 / hertz) / 1000


def _threads(steps: dict[str, np.ndarray]) -> np.ndarray:
    """int64 [steps]: the number of the thread of each; a further lane for what overlaps in one."""
    threads = steps["kind"].astype(np.int64) * _LANES + 1
    starts, ends = steps["start_cycle"], steps["start_cycle"] + steps["cycles"]
    order = np.lexsort((ends, starts, steps["kind"], steps["ipu"]))
    places = steps["ipu"][order].astype(np.int64) * len(trace.KINDS) + steps["kind"][order]
    for alike in np.split(order, np.flatnonzero(np.diff(places)) + 1):
        if (starts[alike][1:] < ends[alike][:-1]).any():
            threads[alike] += _lanes(starts[alike].tolist(), ends[alike].tolist())
    return threads


def _lanes(starts: list[int], ends: list[int]) -> np.ndarray:
    """For intervals by start, the first lane that is free then."""
    free: list[int] = []
    lanes: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((i for i, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes.append(lane)
    return np.array(lanes, dtype=np.int64)


def _names(report: Report, steps: dict[str, np.ndarray], threads: np.ndarray) -> Iterator[_Event]:
    """What processes and threads are called, and their order."""
    for ipu in range(report.num_ipus):
        yield _meta("process_name", ipu + 1, 0, name=f"IPU {ipu}")
        yield _meta("process_sort_index", ipu + 1, 0, sort_index=ipu)
    for ipu, thread in np.unique(np.stack([steps["ipu"], threads]), axis=1).T.tolist():
        kind, lane = divmod(thread - 1, _LANES)
        title = f"{_TITLES[kind]} {lane + 1}" if lane else _TITLES[kind]
        yield _meta("thread_name", ipu + 1, thread, name=title)
        yield _meta("thread_sort_index", ipu + 1, thread, sort_index=thread)


def _meta(what: str, process: int, thread: int, **args: Any) -> _Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}


def _slices(steps: dict[str, np.ndarray], threads: np.ndarray, hertz: float) -> Iterator[str]:
    """As text: there are many, and few things to say of them."""
    names = [
        [f'"name":{_text(name or kind)},"cat":"{kind}"' for kind in trace.KINDS]
        for name in steps["names"].tolist()
    ]
    lines = [f',"line":{_text(line)}' if line else "" for line in steps["origins"].tolist()]
    keys = ("ipu", "kind", "name", "start_cycle", "cycles", "stage", "micro_batch", "phase")
    columns = [steps[key].tolist() for key in keys]
    rows = zip(*columns, threads.tolist(), strict=True)
    for ipu, kind, name, start, cycles, stage, micro_batch, phase, thread in rows:
        args = f'"cycles":{cycles},"start_cycle":{start}'
        if stage != trace.NONE:
            args += f',"stage":{stage}'
        if micro_batch != trace.NONE:
            args += f',"micro_batch":{micro_batch}'
        if phase != trace.NONE:
            args += f',"phase":"{trace.PHASES[phase]}"'
        begin = _microseconds(start, hertz)
        length = round(_microseconds(start + cycles, hertz) - begin, 3)
        yield (
            f'{{"ph":"X",{names[name][kind]},"pid":{ipu + 1},"tid":{thread},"ts":{begin},'
            f'"dur":{length},"args":{{{args}{lines[name]}}}}}'
        )


def _flow(
    number: int, arrow: Arrow, steps: dict[str, np.ndarray], threads: np.ndarray, hertz: float
) -> Iterator[_Event]:
    for mark, step, more in (("s", arrow.source, {}), ("f", arrow.target, {"bp": "e"})):
        yield {
            "ph": mark,
            "name": f"micro-batch {arrow.micro_batch}",
            "cat": "micro-batch",
            "id": number,
            "pid": int(steps["ipu"][step]) + 1,
            "tid": int(threads[step]),
            "ts": _microseconds(int(steps["start_cycle"][step]), hertz),
            **more,
        }


def host_events(spans: Any, process: int) -> Iterator[_Event]:
    """The host's threads, from the first span on."""
    yield _meta("process_name", process, 0, name="host, by wall clock")
    yield _meta("process_sort_index", process, 0, sort_index=process)
    numbers: dict[str, int] = {}
    for span in spans:
        if span.thread not in numbers:
            numbers[span.thread] = len(numbers) + 1
            yield _meta("thread_name", process, numbers[span.thread], name=span.thread)
        begin = _microseconds(span.start)
        yield {
            "ph": "X",
            "name": f"{span.kind} {span.name}".strip(),
            "cat": f"host,{span.kind}",
            "pid": process,
            "tid": numbers[span.thread],
            "ts": begin,
            "dur": round(_microseconds(span.start + span.seconds) - begin, 3),
            "args": {},
        }
