"""How partial sums on several tiles become one: in stages, so that no tile hears from too many.

Source: poplibs: ConvReducePlan.cpp, ConvReduce.cpp and PerformanceEstimation.hpp
getReduceCycleEstimate, for partials that lie one after the other (singleInput).
"""

from __future__ import annotations

import dataclasses as dc
import functools

import numpy as np

from lowering.machine.planner.constants import DATA_PATH_BYTES, bytes_of, stages_of
from lowering.machine.planner.tiles import Array, ceil_div
from lowering.machine.target import Number


@functools.lru_cache(maxsize=4096)
def stage_factors(depth: int) -> tuple[int, ...]:
    """How many partials become one in each stage, first stage first."""
    factors: list[int] = []
    for left in (*_depths_between(depth, max(1, stages_of(depth)))[0], 1):
        factor = ceil_div(depth, left)
        if factor > 1:
            factors.append(factor)
            depth = ceil_div(depth, factor)
    return tuple(factors)


def _depths_between(depth: int, stages: int) -> tuple[tuple[int, ...], float]:
    """Partials left after each stage but the last, and the messages that a tile hears."""
    if stages == 1:
        return (), float(depth)
    low = int(depth ** ((stages - 1) / stages))
    options: list[tuple[tuple[int, ...], float]] = []
    for left in (low + 1, low):
        rest, messages = _depths_between(left, stages - 1)
        options.append(((left, *rest), messages + depth / left))
    return min(options, key=lambda option: option[1])


def reduce_cycles(
    elements: Array, count: Array, partials: Number, casts: Array, workers: int
) -> Array:
    """Tile cycles of one stage's vertex.

    Args:
      elements: that it makes.
      count: partials of each.
      partials: their type.
      casts: whether it leaves half precision.
      workers: of a tile.
    """
    size = bytes_of(partials)
    lanes = 16 // size  # accumulators take two vectors at once (docs/hardware.md, Planner)
    loops = ceil_div(ceil_div(elements, lanes), workers)
    store = (8 if partials == "float32" else 10) - (casts | (partials == "float16"))
    return workers * (20 + (lanes * size // DATA_PATH_BYTES * count + store) * loops) + 33


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """What reductions cost, for every candidate.

    Attributes:
      cycles: of all stages' vertices on a tile.
      exchange_bytes: that a tile receives in all stages.
      temporary_bytes: of the stage that needs most.
      stages: how many there are.
      outputs: elements that a tile is left with.
    """

    cycles: Array
    exchange_bytes: Array
    temporary_bytes: Array
    stages: Array
    outputs: Array


def reductions(
    partials: Array, depths: Array, dtype: Number, result: Number, workers: int
) -> Reduced:
    """Reductions of `partials` elements per tile over `depths` tiles.

    Args:
      partials: int64 [candidates].
      depths: int64 [candidates].
      dtype: of the partials.
      result: of what they become.
      workers: of a tile.
    """
    size = bytes_of(dtype)
    outputs = ceil_div(partials, depths)
    cycles, received, temporary = (np.zeros(len(partials)) for _ in range(3))
    unique, which = np.unique(depths, return_inverse=True)
    factors = [stage_factors(depth) for depth in unique.tolist()]
    left = outputs * depths
    for stage in range(max(map(len, factors))):
        chosen = [each[stage] if stage < len(each) else 1 for each in factors]
        last = np.array([stage == len(each) - 1 for each in factors])[which]
        factor = np.array(chosen)[which]
        runs = factor > 1
        temporary = np.maximum(temporary, np.where(runs, left * size, 0))
        left = ceil_div(left, factor)
        received += (factor - 1) * left * size
        casts = last & (result != dtype)
        cycles += np.where(runs, reduce_cycles(left, factor, dtype, casts, workers), 0)
    return Reduced(
        cycles=cycles,
        exchange_bytes=received,
        temporary_bytes=temporary,
        stages=np.array([len(each) for each in factors])[which],
        outputs=outputs,
    )
