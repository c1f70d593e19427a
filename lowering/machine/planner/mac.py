"""Cycles of the product vertices without AMP: SLIC, HMAC, VMAC and outer product.

Source: poplibs: poplin/PerformanceEstimation.hpp (docs/hardware.md, Other product vertices).
"""

from __future__ import annotations

import math

import numpy as np

from lowering.machine.planner.amp import Units, zeroing_cycles
from lowering.machine.planner.planner_constants import WINDOW
from lowering.machine.planner.tiles import Array, Grains, LargestPart, ceil_div
from lowering.machine.target import Number, Target

_SLIC_MACS = WINDOW**3  # a window's elements, by four input and four output channels


def _count_kernel_rows(part: LargestPart) -> Array:
    return part.kernel_elements_of_part // part.kernel[-1]


def slic_cycles(
    part: LargestPart, grains: Grains, partials: Number, stride: int, target: Target
) -> Array:
    """Returns the tile cycles of a SLIC vertex: windows of four slide over the input.

    Args:
      part: the tile's part of the product.
      grains: the grains of the vertex.
      partials: the type of the sums.
      stride: along the last field dimension, 1 or 2.
      target: the chip.
    """
    workers = target.workers
    rows_per_worker, pieces = part.rows_of_worker(workers)
    # A pass with sixteen units, two with eight; each cycle makes an output of 4 x 4 x 4 products.
    passes = 1 if Units("float16", partials, target).units_per_tile >= 16 else 2
    cycles_per_output = _SLIC_MACS / dict(target.macs_per_cycle)["float16", partials] * stride
    row = (
        15 * passes
        + np.maximum(rows_per_worker / pieces - (5 if stride == 1 else 3), 0) * cycles_per_output
    )
    extra = 3 if partials == "float32" else 0
    calls = workers * (17 + pieces * (10 + extra + row))
    load = 16 + (18 if grains.groups == 1 else 21 + 12 * workers)
    blocks = ceil_div(part.kernel[-1], WINDOW) * _count_kernel_rows(part)
    groups = part.group_grains
    fixed_cycles = 28 + 15 * groups + 6 * (groups - 1) + 1
    return fixed_cycles + blocks * (load + 19) + 6 * (blocks - 1) + groups * blocks * calls


def dot_cycles(size: int, dtype: Number, partials: Number) -> int:
    """Returns the worker cycles of one dot product; of two in half precision with half sums."""
    width = 2 if dtype == "float32" else 4
    outs = 2 if partials == "float16" else 1
    fixed = 3 * outs + (1 if outs == 2 else 0) + 4
    step = math.gcd(size, width)
    return fixed + (size // step if step == width else outs + 2 * size // step)


def hmac_cycles(
    part: LargestPart, grains: Grains, dtype: Number, partials: Number, workers: int
) -> Array:
    """Returns the tile cycles of a ConvPartialHorizontalMac vertex.

    It computes a dot product for each output and tap.
    """
    rows_per_worker, pieces = part.rows_of_worker(workers)
    dot = dot_cycles(grains.in_channels, dtype, partials)
    worker = 16 + part.kernel_elements_of_part * (16 + 19 * pieces + rows_per_worker * (7 + dot))
    zeroing = zeroing_cycles(part.output_rows * grains.out_channels, partials, workers)
    zeroing = zeroing * part.out_grains * part.group_grains
    fixed_cycles = (58 if dtype == "float32" else 63) + workers * (
        9 if partials == "float32" else 10
    )
    outputs = part.out_grains * (10 + workers * worker)
    return fixed_cycles + zeroing + part.group_grains * (23 + part.in_grains * (15 + outputs))


def vmac_cycles(part: LargestPart, grains: Grains, partials: Number, workers: int) -> Array:
    """Returns the tile cycles of a ConvPartialVerticalMac vertex: groups side by side."""
    is_wide = grains.groups >= 8
    rows = ceil_div(part.output_rows * _count_kernel_rows(part), workers)
    if is_wide:
        cycles_per_row = (25 + 3 * (part.kernel[-1] - 1)) * (grains.groups // 8)
    else:
        cycles_per_row = (15 if partials == "float32" else 13) + 2 * (part.kernel[-1] - 1)
    group_cycles = workers * (19 + rows * cycles_per_row)
    per_cycle = 2 if partials == "float32" else 4
    zeroing = 4 + ceil_div(part.output_rows, per_cycle)
    sum_cycles = (19 if partials == "float32" else 12) * ceil_div(part.output_rows, workers)
    groups = part.group_grains
    return 101 + groups * (zeroing + 32 + part.in_grains * (24 + group_cycles) + 10 + sum_cycles)


def outer_product_cycles(part: LargestPart, grains: Grains, dtype: Number, workers: int) -> Array:
    """Returns the tile cycles of an OuterProduct vertex: every input times a row of weights."""
    width = ceil_div(part.output_rows, workers)
    channels = grains.out_channels
    if dtype == "float32":
        cycles_per_row = (
            6 + (channels - 6) / 2 if channels >= 6 and channels % 2 == 0 else 10 + 2 * channels
        )
    else:
        is_fast = channels >= 12 and channels % 4 == 0
        cycles_per_row = 6 + (channels - 12) / 4 if is_fast else 10 + 2.5 * channels
    grains_of_all = part.out_grains * part.group_grains
    return workers * (25 + grains_of_all * (11 + width * cycles_per_row))
