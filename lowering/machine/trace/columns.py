"""A trace as columns: the tree expanded with array operations."""

from __future__ import annotations

import numpy as np

from lowering.ground import InternalError
from lowering.machine.trace.trace_tree import NONE, Block, Group, Loop, On, Tasks, Trace

_Names = dict[tuple[str, str], int]
"""Codes of names and origins."""


def expand_columns(trace: Trace, limit: int | None = None) -> dict[str, np.ndarray]:
    """Returns the first `limit` steps of a trace as arrays; see `Steps.columns`."""
    count = trace.num_steps if limit is None else max(0, min(limit, trace.num_steps))
    names: _Names = {}
    out = _empty_columns(count)
    _fill_columns(trace, out, slice(0, count), names)
    texts = {
        "names": np.array([name for name, _ in names], dtype=np.str_),
        "origins": np.array([origin for _, origin in names], dtype=np.str_),
    }
    return {**out, **texts}


def _empty_columns(count: int) -> dict[str, np.ndarray]:
    """Returns columns for steps without labels, to be filled."""
    return {
        "ipu": np.empty(count, dtype=np.int32),
        "kind": np.empty(count, dtype=np.uint8),
        "name": np.empty(count, dtype=np.int32),
        "start_cycle": np.empty(count, dtype=np.int64),
        "cycles": np.empty(count, dtype=np.int64),
        "operation": np.empty(count, dtype=np.int32),
        "stage": np.full(count, NONE, dtype=np.int32),
        "micro_batch": np.full(count, NONE, dtype=np.int32),
        "phase": np.full(count, NONE, dtype=np.int8),
    }


def _fill_columns(trace: Trace, out: dict[str, np.ndarray], rows: slice, names: _Names) -> None:
    """Writes the first steps of a trace to a range of the columns."""
    count = rows.stop - rows.start
    if count > trace.num_steps:
        raise InternalError(f"{count} of {trace.num_steps} steps")
    if not count:
        return
    if isinstance(trace, Block):
        names_and_origins = zip(trace.names, trace.origins, strict=True)
        codes = np.array([names.setdefault(pair, len(names)) for pair in names_and_origins])
        out["ipu"][rows] = trace.ipu[:count]
        out["kind"][rows] = trace.kind[:count]
        out["name"][rows] = codes[trace.name[:count]]
        out["operation"][rows] = np.array(trace.operations)[trace.name[:count]]
        out["start_cycle"][rows] = trace.start[:count]
        out["cycles"][rows] = trace.cycles[:count]
    elif isinstance(trace, Group):
        for i, child in enumerate(trace.children):
            low = rows.start + int(trace.first[i])
            if low >= rows.stop:
                break
            part = slice(low, min(low + child.num_steps, rows.stop))
            _fill_columns(child, out, part, names)
            out["start_cycle"][part] += trace.offset[i]
    elif isinstance(trace, On):
        _fill_columns(trace.body, out, rows, names)
        out["ipu"][rows] = trace.ipu
    elif isinstance(trace, Loop):
        _fill_loop(trace, out, rows, names)
    else:
        _fill_tasks(trace, out, rows, names)


def _fill_loop(trace: Loop, out: dict[str, np.ndarray], rows: slice, names: _Names) -> None:
    steps_per_iteration = trace.body.num_steps
    step_index = np.arange(int(rows.stop) - int(rows.start))
    first_iteration = slice(rows.start, min(rows.start + steps_per_iteration, rows.stop))
    _fill_columns(trace.body, out, first_iteration, names)
    for column in out.values():
        column[rows] = column[first_iteration][step_index % steps_per_iteration]
    out["start_cycle"][rows] += step_index // steps_per_iteration * trace.period


def _fill_tasks(trace: Tasks, out: dict[str, np.ndarray], rows: slice, names: _Names) -> None:
    count: int = rows.stop - rows.start
    tasks_begun = int(np.searchsorted(trace.first, count, side="left"))
    kinds: list[int] = np.unique(trace.which[:tasks_begun]).tolist()
    for kind in kinds:
        body = trace.bodies[kind]
        body_columns = _empty_columns(body.num_steps)
        _fill_columns(body, body_columns, slice(0, body.num_steps), names)
        runs = np.flatnonzero(trace.which[:tasks_begun] == kind)
        row_of_step = trace.first[runs][:, None] + np.arange(body.num_steps)
        is_in_range = row_of_step < count
        target = (rows.start + row_of_step)[is_in_range]
        inherits = body_columns["phase"] == NONE  # tasks within tasks keep their own labels
        for key, column in out.items():
            values = np.broadcast_to(body_columns[key], row_of_step.shape)
            if key == "start_cycle":
                values = values + trace.start[runs][:, None]
            elif key in ("stage", "micro_batch", "phase"):
                values = np.where(inherits, getattr(trace, key)[runs][:, None], values)
            column[target] = values[is_in_range]
