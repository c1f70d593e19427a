"""The reduction of partial sums on several tiles, in stages that limit messages per tile.

Source: poplibs: ConvReducePlan.cpp, ConvReduce.cpp and PerformanceEstimation.hpp
getReduceCycleEstimate, for partials that lie one after the other (singleInput).
"""

from __future__ import annotations

import dataclasses as dc
import functools

import numpy as np

from lowering.machine.planner.planner_constants import (
    DATA_PATH_BYTES,
    bytes_per_number,
    count_reduction_stages,
)
from lowering.machine.planner.tiles import Array, ceil_div
from lowering.machine.target import Number


@functools.lru_cache(maxsize=4096)
def find_stage_factors(depth: int) -> tuple[int, ...]:
    """Returns how many partials become one in each stage, first stage first."""
    factors: list[int] = []
    for depth_after in (*_depths_after_stages(depth, max(1, count_reduction_stages(depth)))[0], 1):
        factor = ceil_div(depth, depth_after)
        if factor > 1:
            factors.append(factor)
            depth = ceil_div(depth, factor)
    return tuple(factors)


def _depths_after_stages(depth: int, stages: int) -> tuple[tuple[int, ...], float]:
    """Returns the partials left after each stage but the last, and the messages per tile."""
    if stages == 1:
        return (), float(depth)
    low = int(depth ** ((stages - 1) / stages))
    options: list[tuple[tuple[int, ...], float]] = []
    for next_depth in (low + 1, low):
        later_depths, messages = _depths_after_stages(next_depth, stages - 1)
        options.append(((next_depth, *later_depths), messages + depth / next_depth))
    return min(options, key=lambda option: option[1])


def reduction_vertex_cycles(
    elements: Array, count: Array, partials: Number, casts: Array, workers: int
) -> Array:
    """Returns the tile cycles of one stage's vertex.

    Args:
      elements: elements that it makes.
      count: partials of each.
      partials: the type of the partials.
      casts: whether its results are in half precision.
      workers: workers of a tile.
    """
    size = bytes_per_number(partials)
    lanes = 16 // size  # accumulators take two vectors at once (docs/hardware.md, Planner)
    loops = ceil_div(ceil_div(elements, lanes), workers)
    store = (8 if partials == "float32" else 10) - (casts | (partials == "float16"))
    return workers * (20 + (lanes * size // DATA_PATH_BYTES * count + store) * loops) + 33


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class ReductionCosts:
    """The costs of reductions, for every candidate.

    Attributes:
      cycles: cycles of all stages' vertices on a tile.
      exchange_bytes: bytes that a tile receives in all stages.
      temporary_bytes: bytes of the stage that needs most.
      stages: how many there are.
      outputs: elements of a tile after all stages.
    """

    cycles: Array
    exchange_bytes: Array
    temporary_bytes: Array
    stages: Array
    outputs: Array


def estimate_reductions(
    partials: Array, depths: Array, dtype: Number, result: Number, workers: int
) -> ReductionCosts:
    """Estimates reductions of `partials` elements per tile over `depths` tiles.

    Args:
      partials: int64 [candidates].
      depths: int64 [candidates].
      dtype: the type of the partials.
      result: the type of the results.
      workers: workers of a tile.
    """
    size = bytes_per_number(dtype)
    outputs = ceil_div(partials, depths)
    cycles, received, temporary = (np.zeros(len(partials)) for _ in range(3))
    unique, which = np.unique(depths, return_inverse=True)
    factors = [find_stage_factors(depth) for depth in unique.tolist()]
    remaining = outputs * depths
    for stage in range(max(map(len, factors))):
        factor_of_depth = [stages[stage] if stage < len(stages) else 1 for stages in factors]
        last = np.array([stage == len(each) - 1 for each in factors])[which]
        factor = np.array(factor_of_depth)[which]
        runs = factor > 1
        temporary = np.maximum(temporary, np.where(runs, remaining * size, 0))
        remaining = ceil_div(remaining, factor)
        received += (factor - 1) * remaining * size
        casts = last & (result != dtype)
        cycles += np.where(
            runs, reduction_vertex_cycles(remaining, factor, dtype, casts, workers), 0
        )
    return ReductionCosts(
        cycles=cycles,
        exchange_bytes=received,
        temporary_bytes=temporary,
        stages=np.array([len(each) for each in factors])[which],
        outputs=outputs,
    )
