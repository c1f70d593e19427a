"""Poplar tutorial 4 on the IPUModel: m4 = m1 x m2, m5 = m4 x m3 in float32.

Sizes are those of its source (graphcore/examples@2d8b5653: tut4_ipu_model.cpp).
"""

from __future__ import annotations

import re

from lowering.machine.planner import matmul_product, plan_product
from validation.row import Prediction, Row

SIZES = {"first": (900, 600, 300), "second": (900, 300, 200)}
TERMS = {"convolve": ("compute",), "reduce": ("reduce",)}


def predict(row: Row) -> Prediction | None:
    """Cycles of one superstep of a product."""
    found = re.match(r"(first|second) matmul (convolve|reduce) step", row.text)
    if not found:
        return None
    m, k, n = SIZES[found[1]]
    chosen = plan_product(matmul_product(1, m, k, n, "float32", "float32"), row.target)
    cycles = sum(c for name, c in chosen.cycles_by_term if name in TERMS[found[2]])
    return Prediction(cycles=cycles / chosen.serial_parts)
