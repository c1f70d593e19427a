"""Halo exchanges on the IPUModel (lbm-graphcore: HaloRegionApproaches.cpp), two columns of tiles.

An iteration is two supersteps of one vertex per tile. Vertices state their worker's cycles, of
which a tile issues every sixth. Explicit halos are copied by strided vertices around each
exchange, which the model does not know.
"""

from __future__ import annotations

import re

from lowering.machine.transfers.links import exchange_cycles
from validation.row import Prediction, Row, SkipError


def predict(row: Row) -> Prediction | None:
    """Cycles of all iterations."""
    found = re.match(
        r"halo exchange, block (\d+)x(\d+), (\d+) iterations, strategy (\w+)", row.text
    )
    if not found:
        return None
    if found[4] != "implicit":
        raise SkipError("strided copies of explicit halos are not modelled")
    rows, columns, iterations = (int(found[number]) for number in (1, 2, 3))
    target = row.target
    compute = target.workers * float(row.workload.get("compute_vertex_cycles", 100))
    halo = 4 * (2 * columns + rows + 2)  # float32, from above, from below and from one side
    step = compute + exchange_cycles(target, halo) + target.sync_cycles
    return Prediction(cycles=compute + 2 * iterations * step)
