"""Sorting by bitonic networks, as poplibs' popops/BitonicTopK and Sort do.

A network of n keys has log n (log n + 1) / 2 passes, each of which compares every key with one at a
power of two's distance. Rates are those of poplibs' popops/CompareAndSwapAtDistance estimator
(popopsCycleEstimators.cpp), in which every pair is swapped; what a second, third, ... array that
follows the keys adds is taken to be what the first one adds.
"""

from __future__ import annotations

import math

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.stages import Pass, passes
from lowering.machine.primitives.vertices import FREE, Rule, is_float
from lowering.machine.target import Target

RATES = {
    ("keys", True): (57, 13),
    ("keys", False): (64, 12),
    ("pairs", True): (27, 11),
    ("pairs", False): (73, 17),
}
"""(overhead with one work list, cycles per comparison) of a worker, without and with a value per
key, for keys that are floats or not; pairs with floats are written in assembly."""

ANOTHER = 5  # cycles per comparison for each further value; 17 less 12


def _network(extent: int) -> tuple[int, ...]:
    """Distances of a full sort's passes."""
    logarithm = max(0, (extent - 1).bit_length())
    return tuple(1 << i for block in range(logarithm) for i in range(block, -1, -1))


def _top(extent: int, k: int) -> tuple[int, ...]:
    """Distances of the passes that leave the k largest: blocks of k, then halves merged."""
    block = _network(k)
    merges = max(0, (extent - 1).bit_length()) - max(0, (k - 1).bit_length())
    resort = tuple(1 << i for i in range(max(0, (k - 1).bit_length()) - 1, -1, -1))
    return block + tuple(distance for merge in range(merges) for distance in (k << merge, *resort))


def _network_cost(op: Operation, axis: int, top: int | None, target: Target) -> Cost:
    keys = op.operands[0]
    if not keys.elements or not keys.dims:
        return FREE
    axis %= len(keys.dims)
    arrays = op.operands if op.name == "sort" else op.results
    item = sum(array.element_bytes for array in arrays) / keys.element_bytes
    values = len(arrays) - 1
    overhead, cycles = RATES["pairs" if values else "keys", is_float(keys.dtype)]
    cycles += ANOTHER * max(0, values - 1)
    each = Pass("CompareAndSwap", overhead, cycles, share=0.5, sent=item)
    extent, stride = keys.dims[axis], math.prod(keys.dims[axis + 1 :])
    steps = _network(extent) if top is None else _top(extent, min(top, extent))
    return passes(keys, extent, stride, steps, each, target)


def sort(op: Operation, target: Target) -> Cost:
    """All keys of an axis, with what is carried along."""
    return _network_cost(op, int(op.param("dimension", -1)), None, target)


def top_k(op: Operation, target: Target) -> Cost:
    """The k largest of an axis, with their indices."""
    axis = int(op.param("reduction_dimension", -1))
    return _network_cost(op, axis, max(1, int(op.param("k", 1))), target)


RULES: dict[str, Rule] = {"approx_top_k": top_k, "sort": sort, "top_k": top_k}
