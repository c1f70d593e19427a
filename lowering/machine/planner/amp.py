"""Cycles of the vertices that use the convolution units (AMP).

Source: poplibs: poplin/PerformanceEstimation.hpp (docs/hardware.md, AMP vertex), but for the row
overhead in single precision, see `planner_constants`. In half precision workers keep 7 cycles of
state from one call to the next; with them the formula is within 4 cycles of the hardware for 128
rows and more (tessellate-ipu: IPU Peak Flops: 841 for 845, 8521 for 8525).
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from lowering.machine.planner.planner_constants import (
    DATA_PATH_BYTES,
    FLOAT_ROW_OVERHEAD,
    bytes_per_number,
)
from lowering.machine.planner.tiles import Array, Grains, LargestPart, ceil_div
from lowering.machine.target import Number, Target

_RETAINED = (7, 3)  # poplibs: conv1x1WorkerRetentionSavings
_RETAINED_NX1 = 9  # poplibs: convnx1WorkerRetentionSavings
_TAP_CYCLES = {1: 15, 2: 46, 4: 60}  # poplibs: beside the load, by kernel rows in a unit


@dc.dataclass(frozen=True, slots=True)
class Units:
    """The convolution units of a tile.

    Attributes:
      dtype: the type of the operands.
      partials: the type of the sums.
      target: the chip.
    """

    dtype: Number
    partials: Number
    target: Target

    @property
    def units_per_tile(self) -> int:
        """The number of output channels that the units work on side by side."""
        return dict(self.target.amp_units)[self.dtype, self.partials]

    @property
    def row_cycles(self) -> float:
        """Cycles in which the units multiply a row of inputs by weights that are loaded."""
        products = self.units_per_tile * weights_per_unit(self.dtype)
        return products / dict(self.target.macs_per_cycle)[self.dtype, self.partials]

    @property
    def load_cycles(self) -> int:
        """Cycles to load the coefficients of all units."""
        bytes_ = self.units_per_tile * weights_per_unit(self.dtype) * bytes_per_number(self.dtype)
        return bytes_ // self.target.conv_load_bytes

    @property
    def has_common_path(self) -> bool:
        """True if the vertex has the fastest code."""
        return self.dtype == "float16" and (self.units_per_tile >= 16 or self.partials == "float32")


def weights_per_unit(dtype: Number) -> int:
    """Returns the input channels that a unit multiplies at once (getWeightsPerConvUnit)."""
    return 8 if dtype == "float32" else 16


def amp_cycles(
    rows: Any, in_channels: Any, out_channels: Any, dtype: Number, partials: Number, target: Target
) -> Any:
    """Returns the tile cycles of one ConvPartial1x1 vertex, a product of two matrices.

    Args:
      rows: rows of the left operand; a number or an array, as the channels.
      in_channels: the contracted extent.
      out_channels: columns of the right operand.
      dtype: the type of the operands.
      partials: the type of the result.
      target: the chip.
    """
    units = Units(dtype, partials, target)
    in_grains = ceil_div(in_channels, weights_per_unit(dtype))
    out_grains = ceil_div(out_channels, units.units_per_tile)
    cycles = _supervisor_cycles_1x1(units, rows, in_grains, out_grains, 1)
    return cycles if np.ndim(cycles) else float(cycles)


def amp_cycles_of_share(part: LargestPart, grains: Grains, units: Units) -> Array:
    """Returns the tile cycles of a tile's part; a kernel of one element takes the 1x1 vertex.

    Args:
      part: the tile's part of the product.
      grains: those of the vertex; kernel rows make up for missing input channels.
      units: the units that compute.
    """
    kernel_rows = weights_per_unit(units.dtype) // grains.in_channels
    general = _supervisor_cycles_nx1(part, kernel_rows, units)
    if kernel_rows > 1:
        return general
    direct = _supervisor_cycles_1x1(
        units, part.output_rows, part.in_grains, part.out_grains, part.group_grains
    )
    return np.where(part.kernel_elements_of_part == 1, direct, general)


def _worker_cycles_1x1(rows: Any, zeroing: bool, units: Units) -> Any:
    row_cycles = units.row_cycles
    if units.dtype == "float32":
        cycles = np.where(rows == 0, 24, np.maximum(47, FLOAT_ROW_OVERHEAD + row_cycles * rows))
        zero = 2 + units.units_per_tile // 2 * rows
        return cycles + np.where(rows > 0, zero, 0) * zeroing
    few = [rows == 0, rows == 1, rows == 2]
    if units.has_common_path:
        first = 1 if zeroing else 2
        long = (37 if zeroing else 38) + row_cycles * (rows - 3)
        return np.select(few, [20 + first, 31 + first, 40 + first], long)
    zero = (2 + 2 * rows) * zeroing
    return np.select(few, [24, 39 + zero, 40 + zero], 41 + zero + row_cycles * (rows - 3))


def _supervisor_cycles_1x1(
    units: Units, rows: Any, in_grains: Any, out_grains: Any, groups: Any
) -> Any:
    total, per_grain = _RETAINED if units.has_common_path else (0, 0)
    workers = units.target.workers
    rows_per_worker = ceil_div(rows, workers)
    first = workers * (_worker_cycles_1x1(rows_per_worker, True, units) - total)
    later = workers * (_worker_cycles_1x1(rows_per_worker, False, units) - total)
    load = units.load_cycles
    # 13 and 18 hold for the common path; the other one's are within a cycle of them.
    group_cycles = 13 + (in_grains - 1) * (15 + out_grains * (19 + 6 + load + later))
    last = 11 + out_grains * (18 + 7 + load + first)
    fixed_cycles = 50 + workers * (total + per_grain * (in_grains * groups - 1))
    return fixed_cycles + groups * (group_cycles + last)


def _worker_cycles_of_row(rows: Array, units: Units) -> Array:
    """Returns the worker cycles of one piece of a row of outputs, for one kernel element."""
    row_cycles = units.row_cycles
    if units.dtype == "float32":
        return np.where(rows <= 1, 33, FLOAT_ROW_OVERHEAD - 1 + row_cycles * rows)
    return np.select([rows <= 1, rows <= 2], [29, 34], 34 + row_cycles * (rows - 3))


def _supervisor_cycles_nx1(part: LargestPart, kernel_rows: int, units: Units) -> Array:
    workers, partials = units.target.workers, units.partials
    rows_per_worker, pieces = part.rows_of_worker(workers)
    worker = (17 if partials == "float32" else 18) + pieces * (
        3 + _worker_cycles_of_row(rows_per_worker / pieces, units) - _RETAINED_NX1
    )
    outer_loops = ceil_div(part.kernel[0], kernel_rows)
    inner_loops = part.kernel_elements_of_part // part.kernel[0]
    load = units.load_cycles + _TAP_CYCLES.get(kernel_rows, 20 * kernel_rows) + 3
    loops = (
        outer_loops * (14 + inner_loops * (12 + load))
        + outer_loops * inner_loops * workers * worker
    )
    groups, ins, outs = part.group_grains, part.in_grains, part.out_grains
    zeroing = groups * (17 * outs + 6 * (outs - 1) + 1) + 6 * (groups - 1) + 1
    zeroing = (
        zeroing
        + zeroing_cycles(part.output_rows * units.units_per_tile, partials, workers) * outs * groups
    )
    fixed_cycles = 109 + workers * (_RETAINED_NX1 + (9 if partials == "float32" else 10))
    return fixed_cycles + zeroing + groups * (16 + ins * (14 + outs * (14 + loops)))


def zeroing_cycles(elements: Array, partials: Number, workers: int) -> Array:
    """Returns the tile cycles to zero a grain's sums (poplibs: getZeroSupervisorVertex...)."""
    vector = DATA_PATH_BYTES // bytes_per_number(partials)
    return workers * (ceil_div(ceil_div(elements, workers), vector) + 5)
