from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ReportError
from ipujax.host_trace import HostSpan, HostTrace
from ipujax.pipelining_ops import PipelineSchedule
from ipujax.report.presentation.flows import arrows
from ipujax.report.report import Report
from lowering import trace
from tests.ipujax.feeding import infeed
from tests.ipujax.reporting import configured, struct, training, zeros


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


@pytest.mark.parametrize("make", [plain, pipelined, overlapping, empty])
def test_slices_are_the_steps(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    data = written(report, tmp_path / "trace.json")
    slices = of(data, "X")
    assert len(slices) == len(report.steps)
    found = Counter(
        (s["pid"] - 1, s["cat"], s["args"]["start_cycle"], s["args"]["cycles"]) for s in slices
    )
    assert found == Counter((s.ipu, s.kind, s.start_cycle, s.cycles) for s in report.steps)
    labels = Counter(
        (
            s["args"].get("stage"),
            s["args"].get("micro_batch"),
            s["args"].get("phase"),
            s["args"].get("line", ""),
        )
        for s in slices
    )
    assert labels == Counter((s.stage, s.micro_batch, s.phase, s.origin) for s in report.steps)
    assert data["otherData"]["steps_left_out"] == 0


@pytest.mark.parametrize("make", [plain, pipelined, overlapping])
def test_slices_add_up_to_the_busy_cycles(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    found: defaultdict[str, Any] = defaultdict(lambda: np.zeros(report.num_ipus, dtype=np.int64))
    for slice_ in of(written(report, tmp_path / "trace.json"), "X"):
        found[slice_["cat"]][slice_["pid"] - 1] += slice_["args"]["cycles"]
    for kind, cycles in report.busy_cycles.items():
        assert found[kind].tolist() == cycles.tolist()


@pytest.mark.parametrize("make", [plain, pipelined, overlapping])
def test_slices_of_one_thread_do_not_overlap(make: Callable[[], Report], tmp_path: Path) -> None:
    report = make()
    threads: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for slice_ in of(written(report, tmp_path / "trace.json"), "X"):
        start, length = round(slice_["ts"] * 1000), round(slice_["dur"] * 1000)
        threads[slice_["pid"], slice_["tid"]].append((start, start + length))
        assert start == pytest.approx(slice_["args"]["start_cycle"] / 1.33, abs=1)
    for intervals in threads.values():
        intervals.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(intervals))


def test_processes_are_ipus_and_threads_are_kinds(tmp_path: Path) -> None:
    report = pipelined()
    data = written(report, tmp_path / "trace.json")
    names = {(e["pid"], e["tid"], e["name"]): e["args"] for e in of(data, "M")}
    assert names[1, 0, "process_name"] == {"name": "IPU 0"}
    assert names[2, 0, "process_sort_index"] == {"sort_index": 1}
    titles: dict[str, set[str]] = defaultdict(set)
    for slice_ in of(data, "X"):
        thread = names[slice_["pid"], slice_["tid"], "thread_name"]["name"]
        titles[slice_["cat"]].add(thread)
    assert titles["compute"] == {"compute"}
    assert titles["inter_ipu"] == {"inter-IPU"}


def test_steps_that_overlap_get_lanes_of_their_own(tmp_path: Path) -> None:
    report = plain()
    rows = [
        (0, "host", "in", "", 0, 10),
        (0, "host", "out", "", 5, 10),
        (0, "host", "a", "", 12, 1),
    ]
    steps = trace.Steps(trace.block(rows))
    other = dataclasses.replace(report, profile=dataclasses.replace(report.profile, steps=steps))
    data = written(other, tmp_path / "trace.json")
    threads = [slice_["tid"] for slice_ in of(data, "X")]
    assert threads[0] == threads[2] != threads[1]
    names = {e["tid"]: e["args"]["name"] for e in of(data, "M") if e["name"] == "thread_name"}
    assert [names[thread] for thread in threads] == ["host", "host 2", "host"]


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
    slices = {(s["pid"], s["tid"], s["ts"]): s["args"] for s in of(data, "X") if s["dur"]}
    for start, end in zip(starts, ends, strict=True):
        assert start["id"] == end["id"]
        source, target = (slices[e["pid"], e["tid"], e["ts"]] for e in (start, end))
        assert source["micro_batch"] == target["micro_batch"]
        assert f"micro-batch {source['micro_batch']}" == start["name"] == end["name"]
        assert source["phase"] == target["phase"]
        step = 1 if source["phase"] == "fwd" else -1
        assert target["stage"] - source["stage"] == step
        assert start["ts"] <= end["ts"]


def test_tasks_for_weights_send_nothing() -> None:
    """Of two backward tasks of a stage, the second is for the weights."""
    bodies = [trace.block([(ipu_, "compute", "x", "", 0, 4)]) for ipu_ in range(2)]
    tasks = trace.tasks(
        bodies,
        which=[0, 1, 1, 1, 0, 0],
        start=[0, 10, 20, 30, 30, 40],
        stage=[0, 1, 1, 1, 0, 0],
        micro_batch=[0] * 6,
        phase=["fwd", "fwd", "bwd", "bwd", "bwd", "bwd"],
    )
    # Equal neighbours would be read as one task, and are not neighbours in a schedule.
    assert [(a.source, a.target) for a in arrows(trace.Steps(tasks).columns())] == [(0, 1), (3, 4)]


def test_limits_are_recorded(tmp_path: Path) -> None:
    report = pipelined()
    data = written(report, tmp_path / "trace.json", limit=10)
    assert len(of(data, "X")) == 10
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
