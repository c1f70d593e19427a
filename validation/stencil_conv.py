"""PopLibs convolutions as stencils (lbm-graphcore: PoplibsStencil.cpp): the planner under a limit.

Each of 2n steps is a 3x3 convolution of four channels to four, with 128-bit weight loads, and a
copy of the result to where the input lies: one more superstep that waits for an exchange, and
regroups channels (the planner's own costs of these; docs/hardware.md, Planner). Several IPUs are
one larger IPU to the planner; both exchanges go between them, since results lie otherwise than
inputs.
"""

from __future__ import annotations

import dataclasses as dc
import re

from lowering.machine import SUPERSTEP_CYCLES
from lowering.machine.planner import Product, plan_product
from lowering.machine.transfers.links import exchange_cycles, external_sync_cycles, inter_ipu_cycles
from validation.row import Prediction, Row, SkipError

CHANNELS = 4


def predict(row: Row) -> Prediction | None:
    """Seconds of all steps."""
    found = re.match(r"poplibs convolution 3x3 used as stencil, n=(\d+)", row.text)
    if not found:
        return None
    size = row.workload.get("width_height")
    if not (isinstance(size, list) and len(size) == 2):
        raise SkipError("the workload has no 'width_height'")
    proportion = re.search(r"[\d.]+", str(row.workload.get("availableMemoryProportion", "0.6")))
    dtype = "float16" if "half" in str(row.workload.get("dtype")) else "float32"
    field = (int(size[1]), int(size[0]))
    product = Product(
        field=field,
        kernel=(3, 3),
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        input_field=field,
        stride=(1, 1),
        dilation=(1, 1),
        dtype=dtype,
        partials="float32",
        result=dtype,
    )
    target = dc.replace(
        row.target, tiles_per_ipu=row.target.tiles_per_ipu * row.ipus, conv_load_bytes=16
    )
    chosen = plan_product(product, target, float(proportion[0]) if proportion else 0.6)
    moved = product.output_elements * product.element_bytes / target.tiles_per_ipu
    regroup = moved * 5 / (4 * product.element_bytes)
    copy = regroup + SUPERSTEP_CYCLES + exchange_cycles(row.target, moved)
    between = _between(product, row) + external_sync_cycles(row.target, row.ipus)
    return Prediction(cycles=2 * int(found[1]) * (chosen.plan_cycles + copy + 2 * between))


def _between(product: Product, row: Row) -> int:
    """The halo of one row between neighbouring IPUs."""
    border = float(product.field[1] * CHANNELS * product.element_bytes)
    return inter_ipu_cycles(row.target, [(i, i + 1, border) for i in range(row.ipus - 1)])
