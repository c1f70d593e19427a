from __future__ import annotations

import dataclasses
import gzip
import io
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.errors import ReportError
from ipujax.host_trace import HostSpan, HostTrace
from ipujax.pipelining_ops import PipelineSchedule
from ipujax.report import Report
from ipujax.report.presentation import perfetto
from ipujax.report.presentation.perfetto.event_text import PROGRAM
from ipujax.report.presentation.perfetto.flows import find_micro_batch_arrows
from lowering import trace
from tests.ipujax.feeding import infeed
from tests.ipujax.reporting import configured, struct, training, zeros
from tests.ipujax.small_report import small_report
from tests.lowering.machine.test_trace import traces


def pipelined(stages: int = 2, micro_batches: int = 8, **arguments: Any) -> Report:
    configured(stages)
    model, args = training(stages, micro_batches, **arguments)
    return ipu.compile(model).lower(*args).report()


def overlapping() -> Report:
    configured(io_tiles__num_io_tiles=64, io_tiles__place_ops_on_io_tiles=True)
    elements = infeed(zeros(128, 128))

    def fed(x: Any) -> Any:
        return ipu.loops.repeat(20, lambda t, x, y: t + jnp.sin(x) @ y, [x], elements)

    return ipu.compile(fed).lower(struct(128, 128)).report()


def plain() -> Report:
    return ipu.compile(lambda x: jnp.tanh(x) @ x).lower(struct(64, 64)).report()


def empty() -> Report:
    return ipu.compile(lambda x: x).lower(struct(3)).report()


def written(report: Report, path: Path, limit: int | None = None) -> dict[str, Any]:
    report.to_perfetto(path, limit)
    return json.loads(path.read_text(encoding="utf-8"))


def of(data: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    return [event for event in data["traceEvents"] if event["ph"] == mark]


def sharded() -> Report:
    """Two IPUs, of which the second works when the first has ended, and scopes in scopes."""
    configured(2)

    def layers(x: Any, w: Any) -> Any:
        with jax.named_scope("model"):
            with ipu.scopes.ipu_shard(0), jax.named_scope("first"):
                x = jnp.tanh(x @ w)
            with ipu.scopes.ipu_shard(1), jax.named_scope("second"):
                return jnp.tanh(x @ w) @ w

    return ipu.compile(layers).lower(struct(64, 64), struct(64, 64)).report()


MAKE = [plain, pipelined, overlapping, sharded, empty]


class Slice(NamedTuple):
    """A slice of a thread, in nanoseconds, and what it lies in, the outermost first."""

    name: str
    category: str
    start: int
    end: int
    args: dict[str, Any]
    around: tuple[str, ...]


def nested(data: dict[str, Any]) -> dict[tuple[int, int], list[Slice]]:
    """The slices of each thread, read as viewers read them, who are strict about it.

    Events count in the order of time and, at one time, in that of the file. Each end is that of
    the slice that was begun last; what lies in a slice ends before it; neighbours do not overlap.
    """
    events = [event for event in data["traceEvents"] if event["ph"] in "BEX"]
    events.sort(key=lambda event: event["ts"])
    stacks: defaultdict[tuple[int, int], list[tuple[dict[str, Any], int]]] = defaultdict(list)
    free: defaultdict[tuple[int, int], int] = defaultdict(int)
    found: defaultdict[tuple[int, int], list[Slice]] = defaultdict(list)
    for event in events:
        thread = event["pid"], event["tid"]
        stack, at = stacks[thread], round(event["ts"] * 1000)
        assert at >= free[thread], event
        if event["ph"] == "E":
            begun, start = stack.pop()
            around = tuple(outer["name"] for outer, _ in stack)
            args = begun.get("args", {})
            found[thread].append(Slice(begun["name"], begun["cat"], start, at, args, around))
        elif event["ph"] == "B":
            stack.append((event, at))
        else:
            free[thread] = at + round(event["dur"] * 1000)
            around = tuple(outer["name"] for outer, _ in stack)
            args = event.get("args", {})
            found[thread].append(Slice(event["name"], event["cat"], at, free[thread], args, around))
    assert not any(stacks.values())
    return found


def on_programs(data: dict[str, Any]) -> dict[int, list[Slice]]:
    """The slices of each IPU's program."""
    return {pid - 1: slices for (pid, tid), slices in nested(data).items() if tid == PROGRAM}


@pytest.mark.parametrize("make", MAKE)
def test_slices_lie_in_one_another(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    data = written(report, tmp_path / "trace.json")
    assert set(on_programs(data)) == set(range(report.num_ipus))
    for slices in on_programs(data).values():
        (call,) = (one for one in slices if one.category == "call")
        assert (call.name, call.start) == (report.name, 0)
        assert call.end == pytest.approx(report.seconds * 1e9, abs=1)
        assert all(call.name == one.around[0] for one in slices if one is not call)


@given(traces, st.integers(1, 40))
@settings(max_examples=60)
def test_any_steps_can_be_drawn(tree: trace.Trace, limit: int) -> None:
    report = of_trace(tree)
    out = io.StringIO()
    perfetto.write_trace_events(report, out, limit)
    data = json.loads(out.getvalue())
    found = [one for slices in nested(data).values() for one in slices]
    steps = [one for one in found if one.category in trace.KINDS]
    assert len(steps) == min(limit, len(report.steps)) == data["otherData"]["steps"]
    for event in of(data, "C"):
        assert min(event["args"].values()) >= 0


def of_trace(tree: trace.Trace) -> Report:
    """A report of three IPUs that has these steps."""
    base, held = small_report(), small_report().liveness
    memory = dataclasses.replace(base.memory, always_live_bytes=np.array([180, 50, 0]))
    return small_report(
        num_ipus=3,
        cycles=tree.span,
        steps=trace.Steps(tree),
        liveness=(*held, held[1]),
        memory=memory,
    )


@pytest.mark.parametrize("make", MAKE)
def test_steps_are_there_once(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    data = written(report, tmp_path / "trace.json")
    found = Counter(
        (pid - 1, one.category, one.args["cycles"], one.start)
        for (pid, _), slices in nested(data).items()
        for one in slices
        if one.category in trace.KINDS
    )
    hertz = report.target.clock_hz
    assert found == Counter(
        (s.ipu, s.kind, s.cycles, int(s.start_cycle * (1e9 / hertz))) for s in report.steps
    )
    assert data["otherData"]["steps_left_out"] == 0


@pytest.mark.parametrize("make", [pipelined, sharded])
def test_a_step_lies_in_its_task_scopes_and_operation(
    make: Callable[[], Report], tmp_path: Path
) -> None:
    report = make()
    found = Counter(
        (ipu_, one.around[1:], one.category)
        for ipu_, slices in on_programs(written(report, tmp_path / "trace.json")).items()
        for one in slices
        if one.category in trace.KINDS
    )
    words = {"fwd": "forward", "bwd": "backward", "update": "weight update"}

    def around(step: trace.Step) -> tuple[str, ...]:
        task, scopes = (), ()
        if step.phase is not None:
            stage = "" if step.stage is None else f"stage {step.stage} "
            micro_batch = "" if step.micro_batch is None else f", micro-batch {step.micro_batch}"
            task = (f"{stage}{words[step.phase]}{micro_batch}",)
        if step.operation is not None:
            operation = report.operations[step.operation]
            named = operation.label or operation.name
            scopes = (*filter(None, operation.scope.split("/")), named)
        return *task, *scopes

    assert found == Counter((step.ipu, around(step), step.kind) for step in report.steps)


@pytest.mark.parametrize("make", [plain, pipelined, overlapping, sharded])
def test_steps_and_waiting_fill_the_call(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    for ipu_, slices in on_programs(written(report, tmp_path / "trace.json")).items():
        leaves = [one for one in slices if one.category in (*trace.KINDS, "waiting")]
        assert sum(one.args["cycles"] for one in leaves) == report.cycles, ipu_


def test_waiting_says_for_what(tmp_path: Path) -> None:
    data = on_programs(written(sharded(), tmp_path / "trace.json"))
    waits = {
        ipu_: [s.name for s in slices if s.category == "waiting"] for ipu_, slices in data.items()
    }
    assert waits[1][0] == "waits for IPU 0"
    assert waits[0][-1] == "waits for IPU 1"


def test_a_bubble_is_where_the_schedule_has_no_task(tmp_path: Path) -> None:
    report = pipelined(4, 8)
    lines = report.pipeline
    assert lines is not None
    data = on_programs(written(report, tmp_path / "trace.json"))
    grid = lines.grid
    for ipu_, slices in data.items():
        stages = [stage for stage, ipus in enumerate(lines.stage_ipus) if ipu_ in ipus]
        ticks = len(set(grid.tick[np.isin(grid.stage, stages)].tolist()))
        bubbles = sum(s.name == "bubble" for s in slices)
        assert bubbles == len(set(grid.tick.tolist())) - ticks, ipu_


@pytest.mark.parametrize("schedule", [PipelineSchedule.Interleaved, PipelineSchedule.Sequential])
def test_waiting_adds_up_to_what_the_breakdown_says(schedule: Any, tmp_path: Path) -> None:
    report = pipelined(4, 8, pipeline_schedule=schedule)
    causes = report.breakdown
    assert causes is not None
    for ipu_, slices in on_programs(written(report, tmp_path / "trace.json")).items():
        waits = [one for one in slices if one.category == "waiting"]
        bubble = sum(one.args["cycles"] for one in waits if one.name == "bubble")
        assert bubble == causes["bubble"][ipu_]
        assert sum(one.args["cycles"] for one in waits) - bubble == causes["imbalance"][ipu_]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("host", "waits for the host"), ("remote", "waits for streaming memory")],
)
def test_an_ipu_waits_for_what_overlaps_it(kind: str, name: str, tmp_path: Path) -> None:
    rows = [
        (0, "compute", "a", "", 0, 5),
        (0, kind, "in", "", 3, 17),
        (0, "compute", "b", "", 20, 5),
        (1, "compute", "c", "", 0, 19),
        (1, "compute", "d", "", 30, 1),
    ]
    found = on_programs(written(of_trace(trace.build_block(rows)), tmp_path / "trace.json"))
    waits = [[s.name for s in found[i] if s.category == "waiting"] for i in (0, 1, 2)]
    assert waits == [[name, "waits for IPU 1"], ["waits for IPU 0"], ["waits for IPU 1"]]


@pytest.mark.parametrize(
    ("compute", "host", "name"), [(30, 8, "waits for IPU 0"), (5, 33, "waits for the host")]
)
def test_another_ipu_is_waited_for_unless_it_moves_data_all_the_time(
    compute: int, host: int, name: str, tmp_path: Path
) -> None:
    rows = [
        (1, "compute", "a", "", 0, 2),
        (0, "compute", "b", "", 2, compute),
        (0, "host", "out", "", 2 + compute, host),
        (1, "compute", "c", "", 40, 5),
    ]
    found = on_programs(written(of_trace(trace.build_block(rows)), tmp_path / "trace.json"))
    assert [s.name for s in found[1] if s.category == "waiting"] == [name]


def counted(data: dict[str, Any], name: str) -> dict[int, list[tuple[float, int]]]:
    found: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for event in of(data, "C"):
        if event["name"] == name:
            found[event["pid"]].append((event["ts"], *event["args"].values()))
    return found


def test_busy_ipus_are_counted(tmp_path: Path) -> None:
    report = pipelined(4, 8)
    (counts,) = counted(written(report, tmp_path / "trace.json"), "busy").values()
    assert [at for at, _ in counts] == sorted(at for at, _ in counts)
    assert counts[-1] == (pytest.approx(report.seconds * 1e6, abs=1e-3), 0)
    assert max(value for _, value in counts) == 4
    area = sum(v * (b - a) for (a, v), (b, _) in itertools.pairwise(counts))
    busy = sum(cycles.sum() for cycles in report.busy_cycles.values())
    assert area == pytest.approx(busy / report.target.clock_hz * 1e6, rel=1e-3)


def test_live_bytes_are_those_of_the_liveness(tmp_path: Path) -> None:
    report = plain()
    (counts,) = counted(written(report, tmp_path / "trace.json"), "live").values()
    held = report.memory.always_live_bytes[0] + report.liveness[0].bytes
    distinct = [int(a) for a, _ in itertools.groupby(held.tolist())]
    assert [value for _, value in counts] == distinct


@pytest.mark.parametrize("make", [pipelined, overlapping, sharded])
def test_the_most_live_bytes_are_the_peak(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    for process, counts in counted(written(report, tmp_path / "trace.json"), "live").items():
        assert max(value for _, value in counts) == report.memory.peak_bytes[process - 1]


def test_processes_are_ipus(tmp_path: Path) -> None:
    data = written(pipelined(), tmp_path / "trace.json")
    names = {(e["pid"], e["tid"], e["name"]): e["args"] for e in of(data, "M")}
    assert names[1, 0, "process_name"] == {"name": "IPU 0"}
    assert names[2, 0, "process_sort_index"] == {"sort_index": 1}
    assert names[1, PROGRAM, "thread_name"] == {"name": "program"}
    assert names[4, 0, "process_name"] == {"name": "all IPUs"}


def test_steps_that_overlap_get_tracks_of_their_own(tmp_path: Path) -> None:
    rows = [
        (0, "host", "in", "", 0, 10),
        (0, "host", "out", "", 5, 10),
        (0, "host", "a", "", 16, 1),
        (0, "compute", "b", "", 2, 3),
    ]
    data = written(of_trace(trace.build_block(rows)), tmp_path / "trace.json")
    names = {e["tid"]: e["args"]["name"] for e in of(data, "M") if e["name"] == "thread_name"}
    found = {one.name: names[tid] for (_, tid), slices in nested(data).items() for one in slices}
    assert found["in"] == found["a"] == "host"
    assert (found["out"], found["b"]) == ("host 2", "program")


def test_long_loops_are_cut_by_time(tmp_path: Path) -> None:
    body = trace.build_block([(0, "compute", "a", "", 0, 7), (1, "exchange", "b", "", 3, 4)])
    report = of_trace(trace.repeat_trace(body, 10**9, 7))
    data = written(report, tmp_path / "trace.json", limit=1000)
    assert data["otherData"]["steps"] == 1000
    assert data["otherData"]["steps_left_out"] == 2 * 10**9 - 1000
    found = on_programs(data)
    assert [len([s for s in found[i] if s.category in trace.KINDS]) for i in (0, 1)] == [500, 500]
    assert sum(s.name.startswith("waits") for s in found[1]) == 500


@pytest.mark.parametrize(
    ("stages", "schedule"),
    [
        (2, PipelineSchedule.Grouped),
        (4, PipelineSchedule.Interleaved),
        (4, PipelineSchedule.Sequential),
    ],
)
def test_arrows_follow_micro_batches(stages: int, schedule: Any, tmp_path: Path) -> None:
    """From each stage to the next, forward and back, in each run of the pipeline."""
    report = pipelined(stages, 2 * stages, pipeline_schedule=schedule, repeat_count=2)
    data = written(report, tmp_path / "trace.json")
    starts, ends = of(data, "s"), of(data, "f")
    micro_batches = 2 * stages
    assert len(starts) == len(ends) == 2 * 2 * (stages - 1) * micro_batches
    tasks = {
        (pid, tid, one.start): one.around[1]
        for (pid, tid), slices in nested(data).items()
        for one in slices
        if one.category in trace.KINDS and one.end > one.start
    }
    for start, end in zip(starts, ends, strict=True):
        assert start["id"] == end["id"]
        source, target = (tasks[e["pid"], e["tid"], round(e["ts"] * 1000)] for e in (start, end))
        said = [re.fullmatch(r"stage (\d+) (\w+), micro-batch (\d+)", t) for t in (source, target)]
        (first, way, micro_batch), (second, *same) = (match.groups() for match in said if match)
        assert same == [way, micro_batch]
        assert f"micro-batch {micro_batch}" == start["name"] == end["name"]
        assert int(second) - int(first) == (1 if way == "forward" else -1)
        assert start["ts"] <= end["ts"]


def test_tasks_for_weights_send_nothing() -> None:
    """Of two backward tasks of a stage, the second is for the weights."""
    bodies = [trace.build_block([(ipu_, "compute", "x", "", 0, 4)]) for ipu_ in range(2)]
    tasks = trace.build_tasks(
        bodies,
        which=[0, 1, 1, 1, 0, 0],
        start=[0, 10, 20, 30, 30, 40],
        stage=[0, 1, 1, 1, 0, 0],
        micro_batch=[0] * 6,
        phase=["fwd", "fwd", "bwd", "bwd", "bwd", "bwd"],
    )
    # Equal neighbours would be read as one task, and are not neighbours in a schedule.
    assert [
        (a.source, a.target) for a in find_micro_batch_arrows(trace.Steps(tasks).columns())
    ] == [(0, 1), (3, 4)]


def test_limits_are_recorded(tmp_path: Path) -> None:
    report = pipelined()
    data = written(report, tmp_path / "trace.json", limit=10)
    assert sum(e["cat"] in trace.KINDS for e in of(data, "X")) == 10
    assert data["otherData"]["steps"] == 10
    assert data["otherData"]["steps_left_out"] == len(report.steps) - 10
    for bad in (0, -1, 1.5, True, "all"):
        with pytest.raises(ReportError, match="limit is a positive number of steps"):
            report.to_perfetto(tmp_path / "trace.json", bad)


def test_traces_are_compressed_by_name(tmp_path: Path) -> None:
    report = pipelined()
    report.to_perfetto(tmp_path / "trace.json.gz")
    packed = gzip.decompress((tmp_path / "trace.json.gz").read_bytes())
    assert json.loads(packed) == written(report, tmp_path / "trace.json")


def test_the_host_is_a_process_of_its_own(tmp_path: Path) -> None:
    spans = [
        HostSpan("trace", "train", 0.0, 0.5, "main"),
        HostSpan("feed", "queue", 0.25, 1.0, "feeder"),
    ]
    lowered = ipu.compile(lambda x: x + 1).lower(struct(4))
    data = written(lowered.report(host=HostTrace(spans)), tmp_path / "trace.json")
    found = [e for e in of(data, "X") if e["pid"] == 2]
    assert [(e["name"], e["ts"], e["dur"]) for e in found] == [
        ("trace train", 0.0, 5e5),
        ("feed queue", 2.5e5, 1e6),
    ]
    names = [e["args"].get("name") for e in of(data, "M") if e["pid"] == 2]
    assert "host, by wall clock" in names
    assert {"main", "feeder"} <= set(names)
