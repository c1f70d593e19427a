"""Constants of the planner's formulas that are no parameters, and the fitted one.

The fitted one is the only number here without a source of its own. It was fitted once, over the 40
dense rows of the PopSparse benchmark (docs/hardware.md, Measured rows) together: half and single
precision, two sizes of weights, batches from 4 to 32768.
"""

from __future__ import annotations

import math

from lowering.machine.target import Number

DATA_PATH_BYTES = 8
"""What a worker loads or stores in a cycle (poplibs: Target::getDataPathWidth)."""

DEFAULT_PROPORTION = 0.6
"""Share of a tile that a plan's temporary memory may fill (poplibs: ConvOptions.hpp)."""

STAGE_DEPTHS = (16, 125)
"""Partials from which on a reduction takes two, three stages (poplibs: ConvReducePlan.cpp)."""

WINDOW = 4
"""Width of a SLIC vertex's window (poplibs: ConvPlan.cpp)."""

FLOAT_ROW_OVERHEAD = 36
"""Fitted (see above): worker cycles of an AMP pass in single precision beside 8 per row.

The original's estimator takes the same 46 cycles for one to three rows; in the measurements every
row takes its 8.
"""


def bytes_per_number(number: Number) -> int:
    """Returns the bytes of one operand or sum of a type."""
    return 4 if number == "float32" else 2


def count_reduction_stages(depth: int) -> int:
    """Returns in how many stages that many partials are reduced."""
    if depth <= 1:
        return 0
    return 1 + sum(depth >= first_depth for first_depth in STAGE_DEPTHS)


def find_divisors(number: int) -> list[int]:
    """Returns all divisors of a number, in order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
