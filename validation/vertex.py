"""What one tile does: AMP vertices, their calls, and local copies."""

from __future__ import annotations

import re
from typing import cast

import jax

from lowering.machine import SUPERSTEP_CYCLES, estimate_tile_cycles
from lowering.machine.planner import amp_cycles
from lowering.machine.planner.planner_constants import DATA_PATH_BYTES
from lowering.machine.target import Number, Target
from validation.row import Prediction, Row, SkipError


def predict(row: Row) -> Prediction | None:
    """Cycles on a tile; operations of all tiles."""
    if row.text.startswith("per-tile matmul"):
        return _matmul(row)
    if row.text.startswith("amp kernel call"):
        cycles = _amp(16, 16, 16, row.target) - _steady(16, 16, 16, row.target)
        return Prediction(cycles=cycles, assumptions=("a call for [16, 16] x [16, 16] halves",))
    group = re.match(r"amp group (\d+) columns x (\d+) k", row.text)
    if group:
        columns, depth = int(group[1]), int(group[2])
        return Prediction(
            cycles=_amp(columns, depth, 16, row.target),
            assumptions=("columns are the rows of the left operand; 16 output channels",),
        )
    copy = re.match(r"tile-local copy (\d+) (kib|b)", row.text)
    if copy:
        moved = int(copy[1]) * (1024 if copy[2] == "kib" else 1)
        return Prediction(cycles=SUPERSTEP_CYCLES + moved / DATA_PATH_BYTES, bytes=moved)
    if row.text.startswith("poplibs scaled add") and "on one tile" in row.text:
        return Prediction(cycles=_scaled_add(int(row.number("elements")), row))
    return None


def _scaled_add(elements: int, row: Row) -> float:
    y, factor = (jax.ShapeDtypeStruct(shape, row.dtype) for shape in ((elements,), ()))
    traced = jax.jit(lambda y, factor, x: y + factor * x).trace(y, factor, y)
    return estimate_tile_cycles(traced.jaxpr, row.target)


def _matmul(row: Row) -> Prediction:
    lhs, rhs = row.workload.get("lhs"), row.workload.get("rhs")
    if not (isinstance(lhs, list) and isinstance(rhs, list) and len(lhs) == len(rhs) == 2):
        raise SkipError("the workload has no shapes 'lhs' and 'rhs'")
    (rows, depth), (_, columns) = lhs, rhs
    dtype = cast(Number, row.dtype)
    partials = cast(Number, row.partials or dtype)
    cycles = amp_cycles(rows, depth, columns, dtype, partials, row.target)
    flops = 2.0 * rows * depth * columns * row.target.tiles_per_ipu
    return Prediction(cycles=cycles, flops=flops)


def _amp(rows: int, depth: int, columns: int, target: Target) -> float:
    return float(amp_cycles(rows, depth, columns, "float16", "float16", target))


def _steady(rows: int, depth: int, columns: int, target: Target) -> float:
    return rows * depth * columns / dict(target.macs_per_cycle)["float16", "float16"]
