"""The cost of sorting by bitonic networks, as in poplibs' popops/BitonicTopK and Sort.

A network of n keys has log n (log n + 1) / 2 passes, each of which compares every key with one at a
power of two's distance. Rates are those of poplibs' popops/CompareAndSwapAtDistance estimator
(popopsCycleEstimators.cpp), in which every pair is swapped; a second, third, ... array that follows
the keys is taken to add as much as the first one.
"""

from __future__ import annotations

import math

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.cost_stages import Pass, cost_of_passes
from lowering.machine.primitives.rule_helpers import FREE, Rule, is_float
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


def _distances_of_sort(extent: int) -> tuple[int, ...]:
    """Returns the distances of a full sort's passes."""
    logarithm = max(0, (extent - 1).bit_length())
    return tuple(1 << i for block in range(logarithm) for i in range(block, -1, -1))


def _distances_of_top_k(extent: int, k: int) -> tuple[int, ...]:
    """Returns the distances of passes that leave the k largest: blocks of k, then halves merged."""
    block = _distances_of_sort(k)
    merges = max(0, (extent - 1).bit_length()) - max(0, (k - 1).bit_length())
    resort = tuple(1 << i for i in range(max(0, (k - 1).bit_length()) - 1, -1, -1))
    return block + tuple(distance for merge in range(merges) for distance in (k << merge, *resort))


def _cost_of_network(op: Operation, axis: int, top: int | None, target: Target) -> Cost:
    keys = op.operands[0]
    if not keys.elements or not keys.dims:
        return FREE
    axis %= len(keys.dims)
    arrays = op.operands if op.name == "sort" else op.results
    item = sum(array.element_bytes for array in arrays) / keys.element_bytes
    values = len(arrays) - 1
    overhead, cycles = RATES["pairs" if values else "keys", is_float(keys.dtype)]
    cycles += ANOTHER * max(0, values - 1)
    compare_pass = Pass("CompareAndSwap", overhead, cycles, share=0.5, sent=item)
    extent, stride = keys.dims[axis], math.prod(keys.dims[axis + 1 :])
    steps = (
        _distances_of_sort(extent) if top is None else _distances_of_top_k(extent, min(top, extent))
    )
    return cost_of_passes(keys, extent, stride, steps, compare_pass, target)


def sort_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of sorting all keys of an axis, with the values that go along."""
    return _cost_of_network(op, int(op.param("dimension", -1)), None, target)


def top_k_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of the k largest keys of an axis, with their indices."""
    axis = int(op.param("reduction_dimension", -1))
    return _cost_of_network(op, axis, max(1, int(op.param("k", 1))), target)


RULES: dict[str, Rule] = {"approx_top_k": top_k_cost, "sort": sort_cost, "top_k": top_k_cost}
