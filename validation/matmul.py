"""Dense products on one IPU: TFLOP/s over the cycles of compute and exchange, as PopSparse counts.

The batch is the rows of the left operand, as a layer has it: [n_batch, k] x [k, m]. Where the row
leaves the partials to the library, they are of the operands' type: the published half-precision
curve lies above what float32 partials could reach (174 TFLOP/s on Bow).
"""

from __future__ import annotations

from typing import cast

from lowering.machine.planner import matmul_product, plan_product
from lowering.machine.target import Number
from validation.row import Prediction, Row


def predict(row: Row) -> Prediction | None:
    """Cycles and operations of one product."""
    if not row.text.startswith("dense matmul"):
        return None
    m, k, n = (int(row.number(name)) for name in ("m", "k", "n_batch"))
    dtype = cast(Number, row.dtype)
    partials = cast(Number, row.partials or dtype)
    cycles = plan_product(matmul_product(1, n, k, m, dtype, partials), row.target).plan_cycles
    return Prediction(cycles=cycles, flops=2.0 * m * k * n)
