"""The cost of Fourier transforms, which the original does not have.

The algorithm is Cooley and Tukey's, a pass over every transformed axis for each prime factor of its
length; a length with a factor above `MOST_RADIX` is Bluestein's convolution of the next power of
two, as in the library that XLA calls (DUCC). In a pass of radix p, an element is multiplied by a
root of unity, but for each p-th, and takes p - 1 sums, each with a product for p above 2. Complex
numbers are pairs of floats, with the loops of the plain operations.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Iterator
from typing import Any

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.cost_stages import Pass, cost_of_passes
from lowering.machine.primitives.elementwise_cost import BINARY_START_OTHERS, cycles_per_element
from lowering.machine.primitives.rule_helpers import FREE, Rule, largest_shape
from lowering.machine.target import Target

MOST_RADIX = 13
_NUMBER = "complex64"
FLOPS = {"mul": 6, "add": 2}


def fft_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a Fourier transform: passes over the last axes, the innermost first."""
    array = largest_shape((*op.operands, *op.results))
    lengths: Any = op.param("fft_lengths", array.dims[-1:])
    if not array.elements:
        return FREE
    costs: list[Cost] = []
    flops = 0.0
    for i in range(min(len(lengths), len(array.dims))):
        row, stride = array.dims[-1 - i], math.prod(array.dims[len(array.dims) - i :])
        long, times = _transform_length(row)
        shape = Shape((array.elements // row * long,), _NUMBER)
        for step, radix in _distances_and_radices(long):
            counts = _butterfly_counts(radix)
            butterfly = Pass("Butterfly", BINARY_START_OTHERS, cycles_per_element(counts, _NUMBER))
            costs += [cost_of_passes(shape, long, stride, (step,), butterfly, target)] * times
            flops += shape.elements * times * sum(FLOPS[name] * n for name, n in counts.items())
    phases = tuple(phase for cost in costs for phase in cost.phases)
    return dc.replace(costs[0], phases=phases, flops=flops) if phases else FREE


def _transform_length(row: int) -> tuple[int, int]:
    """Returns the length of the transforms that a row takes, and how many there are."""
    if max(_prime_factors(row), default=1) <= MOST_RADIX:
        return row, 1
    return 1 << (2 * row - 2).bit_length(), 3


def _distances_and_radices(length: int) -> Iterator[tuple[int, int]]:
    """Yields the distance and the radix of each pass."""
    step = 1
    for radix in _prime_factors(length):
        yield step, radix
        step *= radix


def _prime_factors(number: int) -> Iterator[int]:
    factor = 2
    while number > 1:
        while number % factor:
            factor += 1
        yield factor
        number //= factor


def _butterfly_counts(radix: int) -> dict[str, float]:
    """Returns the complex operations for an element in a pass."""
    sums = radix - 1
    return {"add": sums, "mul": sums / radix + (sums if radix > 2 else 0)}


RULES: dict[str, Rule] = {"fft": fft_cost}
