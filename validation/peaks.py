"""The best that a chip does: of all square products that fit, and of all tiles loading."""

from __future__ import annotations

import re
from typing import cast

from lowering.machine.planner import matmul_product, plan_product
from lowering.machine.target import Number, Target
from validation.row import Prediction, Row

SIDES = (256, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096)
TRIAD_BYTES = 24  # two loads and a store of 8 (docs/hardware.md, Chips)
LOAD_BYTES = 16  # per tile and cycle, interleaved memory (docs/hardware.md, Memory)


def predict(row: Row) -> Prediction | None:
    """Operations or bytes of one cycle, or of the fastest product."""
    target = row.target
    dtype: Number = "float32" if "fp32" in row.text else "float16"
    if "peak" in row.text:
        partials = cast(Number, row.partials or ("float32" if "mixed" in row.text else dtype))
        macs = dict(target.macs_per_cycle)[dtype, partials]
        return Prediction(cycles=1.0, flops=2.0 * macs * target.tiles_per_ipu)
    if "stream triad" in row.text:
        return Prediction(cycles=1.0, bytes=float(TRIAD_BYTES * target.tiles_per_ipu))
    if "local memory load bandwidth" in row.text:
        return Prediction(cycles=1.0, bytes=float(LOAD_BYTES * target.tiles_per_ipu))
    if not re.match(r"best (gemm|squared matmul)", row.text):
        return None
    partials = cast(Number, row.partials or ("float32" if "mixed" in row.text else dtype))
    return max(
        (_square(side, dtype, partials, target) for side in SIDES if _fits(side, dtype, target)),
        key=lambda one: (one.flops or 0) / (one.cycles or 1),
    )


def _square(side: int, dtype: Number, partials: Number, target: Target) -> Prediction:
    cycles = plan_product(matmul_product(1, side, side, side, dtype, partials), target).plan_cycles
    return Prediction(cycles=cycles, flops=2.0 * side**3)


def _fits(side: int, dtype: Number, target: Target) -> bool:
    """Two operands and the result leave a tenth of the memory for exchange and code."""
    taken = 3 * side * side * (4 if dtype == "float32" else 2)
    return taken <= 0.9 * target.usable_bytes_per_tile * target.tiles_per_ipu
