"""A report as plain data, small however long the program runs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report import Report

SCHEMA = 1
"""Changes whenever a reader of older reports would go wrong."""

Runs = list[list[int]]
"""Numbers as arithmetic runs `[first, step, count]`."""

_Number = Callable[[trace.Trace], int]
"""What nodes are called; new ones are added."""


def report_dict(report: Report) -> dict[str, Any]:
    """See `Report.to_dict`."""
    pipeline = report.pipeline
    return {
        "schema": SCHEMA,
        "name": report.name,
        "target": _target(report.target),
        "num_ipus": report.num_ipus,
        "replication_factor": report.replication_factor,
        "cycles": int(report.cycles),
        "seconds": float(report.seconds),
        "elements": int(report.elements),
        "throughput": report.throughput,
        "default_share": float(report.default_share),
        "assumptions": list(report.assumptions),
        "memory": _memory(report.memory),
        "busy_cycles": {kind: array.tolist() for kind, array in report.busy_cycles.items()},
        "pipeline": None if pipeline is None else _pipeline(pipeline),
        "operations": [_numbers(dc.asdict(operation)) for operation in report.operations],
        "advice": [dc.asdict(entry) for entry in report.advice],
        "steps": _steps(report.steps.trace),
    }


def _numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """NumPy's numbers and arrays as Python's."""
    return {
        name: value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
        for name, value in fields.items()
    }


def _target(target: machine.Target) -> dict[str, Any]:
    names = ("name", "tiles_per_ipu", "bytes_per_tile", "usable_bytes_per_tile", "clock_hz")
    return {name: getattr(target, name) for name in names}


def _memory(memory: machine.Memory) -> dict[str, Any]:
    ipu, tile = memory.worst
    return {
        "fits": memory.fits,
        "limit": int(memory.limit),
        "missing_bytes": memory.missing_bytes,
        "worst": {"ipu": ipu, "tile": tile},
        "tile_peak_bytes": memory.tile_peak_bytes.tolist(),
        "always_live_bytes": memory.always_live_bytes.tolist(),
        "peak_bytes": memory.peak_bytes.tolist(),
        "remote_bytes": memory.remote_bytes.tolist(),
        "by_category": {name: int(bytes_) for name, bytes_ in memory.by_category.items()},
        "ipu_categories": {name: b.tolist() for name, b in memory.ipu_categories.items()},
        "most_code_bytes": memory.most_code_bytes,
        "code_limit": memory.code_limit,
        "biggest": [_numbers(dc.asdict(tensor)) for tensor in memory.biggest],
    }


def _pipeline(pipeline: machine.PipelineProfile) -> dict[str, Any]:
    names = ("schedule", "stages", "micro_batches", "ticks", "bubble_fraction", "utilisation")
    return {
        **_numbers({name: getattr(pipeline, name) for name in names}),
        "cycles": int(pipeline.cycles),
        "tick_cycles": pipeline.tick_cycles.tolist(),
        "stage_cycles": [
            {"stage": stage, "phase": phase, "cycles": float(cycles)}
            for (stage, phase), cycles in pipeline.stage_cycles.items()
        ],
    }


def _steps(root: trace.Trace) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    known: dict[int, int] = {}

    def number(node: trace.Trace) -> int:
        if id(node) not in known:
            data = _node(node, number)
            known[id(node)] = len(nodes)
            nodes.append(data)
        return known[id(node)]

    top = number(root)
    return {"count": root.num_steps, "root": top, "nodes": nodes}


def _node(node: trace.Trace, number: _Number) -> dict[str, Any]:
    match node:
        case trace.Block():
            return _block(node)
        case trace.Loop():
            body = number(node.body)
            return {"type": "loop", "body": body, "count": node.count, "period": node.period}
        case trace.Group():
            return {"type": "group", "parts": _parts(node, number)}
        case trace.Tasks():
            return {"type": "tasks", "tasks": _tasks(node, number)}


def _block(block: trace.Block) -> dict[str, Any]:
    kinds = [trace.KINDS[kind] for kind in block.kind.tolist()]
    columns = (block.ipu.tolist(), kinds, *(c.tolist() for c in (block.name, block.start)))
    rows = zip(*columns, block.cycles.tolist(), strict=True)
    return {"type": "block", "names": list(block.names), "steps": list(map(list, rows))}


def _parts(group: trace.Group, number: _Number) -> Runs:
    """Neighbours that are the same node share an entry for each run of their starts."""
    children = np.array([number(child) for child in group.children], dtype=np.int64)
    cuts = np.flatnonzero(np.diff(children)) + 1
    starts = np.split(group.offset, cuts)
    firsts = [int(each[0]) for each in np.split(children, cuts)] if len(children) else []
    return [[child, *run] for child, own in zip(firsts, starts, strict=False) for run in runs(own)]


def _tasks(tasks: trace.Tasks, number: _Number) -> list[dict[str, Any]]:
    """Tasks of one body, stage and phase together, in the order in which they were."""
    keys = np.stack([tasks.which, tasks.stage, tasks.phase.astype(np.int32)])
    kinds, member = np.unique(keys, axis=1, return_inverse=True)
    entries: list[dict[str, Any]] = []
    for i, (which, stage, phase) in enumerate(kinds.T.tolist()):
        own = member.reshape(-1) == i
        entries.append(
            {
                "body": number(tasks.bodies[which]),
                "stage": None if stage == trace.NONE else stage,
                "phase": None if phase == trace.NONE else trace.PHASES[phase],
                "starts": runs(tasks.start[own]),
                "micro_batches": runs(tasks.micro_batch[own]),
            }
        )
    return entries


def runs(values: np.ndarray) -> Runs:
    """Numbers as the fewest runs `[first, step, count]` that a walk from the left finds."""
    steps = np.diff(values.astype(np.int64)).tolist()
    found: Runs = []
    first, count, step = 0, 0, 0
    for i, value in enumerate(values.tolist()):
        if count > 1 and steps[i - 1] != step:
            found.append([first, step, count])
            count = 0
        if count == 0:
            first, step = value, 0
        elif count == 1:
            step = steps[i - 1]
        count += 1
    return [*found, [first, step, count]] if count else found
