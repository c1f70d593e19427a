"""A trace as columns: the tree expanded with array operations."""

from __future__ import annotations

import numpy as np

from lowering.errors import InternalError
from lowering.machine.trace.tree import NONE, Block, Group, Loop, On, Tasks, Trace

_Names = dict[tuple[str, str], int]
"""Codes of names and origins."""


def columns(trace: Trace, limit: int | None = None) -> dict[str, np.ndarray]:
    """The first `limit` steps of a trace as arrays; see `Steps.columns`."""
    count = trace.num_steps if limit is None else max(0, min(limit, trace.num_steps))
    names: _Names = {}
    out = _empty(count)
    _fill(trace, out, slice(0, count), names)
    texts = {
        "names": np.array([name for name, _ in names], dtype=np.str_),
        "origins": np.array([origin for _, origin in names], dtype=np.str_),
    }
    return {**out, **texts}


def _empty(count: int) -> dict[str, np.ndarray]:
    """Columns of steps without labels, to be filled."""
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


def _fill(trace: Trace, out: dict[str, np.ndarray], where: slice, names: _Names) -> None:
    """Writes the first steps of a trace to columns, as many as fit between two places."""
    count = where.stop - where.start
    if count > trace.num_steps:
        raise InternalError(f"{count} of {trace.num_steps} steps")
    if not count:
        return
    if isinstance(trace, Block):
        called = zip(trace.names, trace.origins, strict=True)
        codes = np.array([names.setdefault(pair, len(names)) for pair in called])
        out["ipu"][where] = trace.ipu[:count]
        out["kind"][where] = trace.kind[:count]
        out["name"][where] = codes[trace.name[:count]]
        out["operation"][where] = np.array(trace.operations)[trace.name[:count]]
        out["start_cycle"][where] = trace.start[:count]
        out["cycles"][where] = trace.cycles[:count]
    elif isinstance(trace, Group):
        for i, child in enumerate(trace.children):
            low = where.start + int(trace.first[i])
            if low >= where.stop:
                break
            part = slice(low, min(low + child.num_steps, where.stop))
            _fill(child, out, part, names)
            out["start_cycle"][part] += trace.offset[i]
    elif isinstance(trace, On):
        _fill(trace.body, out, where, names)
        out["ipu"][where] = trace.ipu
    elif isinstance(trace, Loop):
        _fill_loop(trace, out, where, names)
    else:
        _fill_tasks(trace, out, where, names)


def _fill_loop(trace: Loop, out: dict[str, np.ndarray], where: slice, names: _Names) -> None:
    size, place = trace.body.num_steps, np.arange(where.stop - where.start)
    once = slice(where.start, min(where.start + size, where.stop))
    _fill(trace.body, out, once, names)
    for column in out.values():
        column[where] = column[once][place % size]
    out["start_cycle"][where] += place // size * trace.period


def _fill_tasks(trace: Tasks, out: dict[str, np.ndarray], where: slice, names: _Names) -> None:
    count = where.stop - where.start
    begun = int(np.searchsorted(trace.first, count, side="left"))
    for kind in np.unique(trace.which[:begun]).tolist():
        body = trace.bodies[kind]
        once = _empty(body.num_steps)
        _fill(body, once, slice(0, body.num_steps), names)
        runs = np.flatnonzero(trace.which[:begun] == kind)
        places = trace.first[runs][:, None] + np.arange(body.num_steps)
        inside = places < count
        target = (where.start + places)[inside]
        inherits = once["phase"] == NONE  # tasks within tasks keep their own labels
        for key, column in out.items():
            values = np.broadcast_to(once[key], places.shape)
            if key == "start_cycle":
                values = values + trace.start[runs][:, None]
            elif key in ("stage", "micro_batch", "phase"):
                values = np.where(inherits, getattr(trace, key)[runs][:, None], values)
            column[target] = values[inside]
