"""Cycles of the vertices that use the convolution units (AMP).

Source: poplibs: poplin/PerformanceEstimation.hpp (docs/hardware.md, AMP vertex), but for the row
overhead in single precision, see `constants`. In half precision workers keep 7 worker cycles of
state from one call to the next; with them the formula is within 4 cycles of the hardware for 128
rows and more (tessellate-ipu: IPU Peak Flops: 841 for 845, 8521 for 8525).
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from lowering.machine.planner.constants import DATA_PATH_BYTES, FLOAT_ROW_OVERHEAD, bytes_of
from lowering.machine.planner.tiles import Array, Grains, Share, ceil_div
from lowering.machine.target import Number, Target

_RETAINED = (7, 3)  # poplibs: conv1x1WorkerRetentionSavings
_RETAINED_NX1 = 9  # poplibs: convnx1WorkerRetentionSavings
_TAP_CYCLES = {1: 15, 2: 46, 4: 60}  # poplibs: beside the load, by kernel rows in a unit


@dc.dataclass(frozen=True, slots=True)
class Units:
    """The convolution units of a tile.

    Attributes:
      dtype: of the operands.
      partials: of the sums.
      target: the chip.
    """

    dtype: Number
    partials: Number
    target: Target

    @property
    def number(self) -> int:
        """Output channels that they work on side by side."""
        return dict(self.target.amp_units)[self.dtype, self.partials]

    @property
    def row_cycles(self) -> float:
        """Cycles in which they multiply a row of inputs by their weights, once these are there."""
        products = self.number * weights_per_unit(self.dtype)
        return products / dict(self.target.macs_per_cycle)[self.dtype, self.partials]

    @property
    def load_cycles(self) -> int:
        """Cycles to load their coefficients."""
        bytes_ = self.number * weights_per_unit(self.dtype) * bytes_of(self.dtype)
        return bytes_ // self.target.conv_load_bytes

    @property
    def take_common_path(self) -> bool:
        """Whether the vertex has the code that is fastest."""
        return self.dtype == "float16" and (self.number >= 16 or self.partials == "float32")


def weights_per_unit(dtype: Number) -> int:
    """Input channels that a unit multiplies at once (poplibs: getWeightsPerConvUnit)."""
    return 8 if dtype == "float32" else 16


def amp_cycles(
    rows: Any, in_channels: Any, out_channels: Any, dtype: Number, partials: Number, target: Target
) -> Any:
    """Tile cycles of one ConvPartial1x1 vertex: [rows, in_channels] x [in_channels, out_channels].

    Args:
      rows: of the left operand; a number or an array, as the channels.
      in_channels: summed over.
      out_channels: columns of the right operand.
      dtype: of the operands.
      partials: of the result.
      target: the chip.
    """
    units = Units(dtype, partials, target)
    in_grains = ceil_div(in_channels, weights_per_unit(dtype))
    out_grains = ceil_div(out_channels, units.number)
    cycles = _supervisor(units, rows, in_grains, out_grains, 1)
    return cycles if isinstance(cycles, np.ndarray) and cycles.ndim else float(cycles)


def amp_share(part: Share, grains: Grains, units: Units) -> Array:
    """Tile cycles of a tile's part: by the 1x1 vertex where the kernel is one element.

    Args:
      part: what the tile has.
      grains: the vertex's; fewer input channels than a unit takes are filled up with kernel rows.
      units: what computes.
    """
    filled = weights_per_unit(units.dtype) // grains.in_channels
    general = _nx1(part, filled, units)
    if filled > 1:
        return general
    direct = _supervisor(units, part.rows, part.in_grains, part.out_grains, part.group_grains)
    return np.where(part.taps == 1, direct, general)


def _worker_1x1(rows: Any, zeroing: bool, units: Units) -> Any:
    each = units.row_cycles
    if units.dtype == "float32":
        cycles = np.where(rows == 0, 24, np.maximum(47, FLOAT_ROW_OVERHEAD + each * rows))
        zero = 2 + units.number // 2 * rows
        return cycles + np.where(rows > 0, zero, 0) * zeroing
    few = [rows == 0, rows == 1, rows == 2]
    if units.take_common_path:
        first = 1 if zeroing else 2
        long = (37 if zeroing else 38) + each * (rows - 3)
        return np.select(few, [20 + first, 31 + first, 40 + first], long)
    zero = (2 + 2 * rows) * zeroing
    return np.select(few, [24, 39 + zero, 40 + zero], 41 + zero + each * (rows - 3))


def _supervisor(units: Units, rows: Any, in_grains: Any, out_grains: Any, groups: Any) -> Any:
    total, per_grain = _RETAINED if units.take_common_path else (0, 0)
    workers = units.target.workers
    most = ceil_div(rows, workers)
    first = workers * (_worker_1x1(most, True, units) - total)
    later = workers * (_worker_1x1(most, False, units) - total)
    load = units.load_cycles
    # 13 and 18 hold for the common path; the other one's are within a cycle of them.
    each = 13 + (in_grains - 1) * (15 + out_grains * (19 + 6 + load + later))
    last = 11 + out_grains * (18 + 7 + load + first)
    once = 50 + workers * (total + per_grain * (in_grains * groups - 1))
    return once + groups * (each + last)


def _worker_rows(rows: Array, units: Units) -> Array:
    """Worker cycles of one piece of a row of outputs, for one element of the kernel."""
    each = units.row_cycles
    if units.dtype == "float32":
        return np.where(rows <= 1, 33, FLOAT_ROW_OVERHEAD - 1 + each * rows)
    return np.select([rows <= 1, rows <= 2], [29, 34], 34 + each * (rows - 3))


def _nx1(part: Share, filled: int, units: Units) -> Array:
    workers, partials = units.target.workers, units.partials
    most, pieces = part.rows_of_worker(workers)
    worker = (17 if partials == "float32" else 18) + pieces * (
        3 + _worker_rows(most / pieces, units) - _RETAINED_NX1
    )
    outer = ceil_div(part.kernel[0], filled)
    inner = part.taps // part.kernel[0]
    load = units.load_cycles + _TAP_CYCLES.get(filled, 20 * filled) + 3
    loops = outer * (14 + inner * (12 + load)) + outer * inner * workers * worker
    groups, ins, outs = part.group_grains, part.in_grains, part.out_grains
    zeroing = groups * (17 * outs + 6 * (outs - 1) + 1) + 6 * (groups - 1) + 1
    zeroing = zeroing + zero_cycles(part.rows * units.number, partials, workers) * outs * groups
    once = 109 + workers * (_RETAINED_NX1 + (9 if partials == "float32" else 10))
    return once + zeroing + groups * (16 + ins * (14 + outs * (14 + loops)))


def zero_cycles(elements: Array, partials: Number, workers: int) -> Array:
    """Tile cycles to zero a grain's sums (poplibs: getZeroSupervisorVertexCycleEstimate)."""
    vector = DATA_PATH_BYTES // bytes_of(partials)
    return workers * (ceil_div(ceil_div(elements, workers), vector) + 5)
