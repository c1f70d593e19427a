"""Fourier transforms; the original has none.

The default: the radix-2 algorithm, a pass per factor of two over every transformed axis, ten
operations per butterfly of two complex numbers, complex numbers as pairs.
"""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.stages import Pass, doubling, passes
from lowering.machine.primitives.vertices import FREE, Rule, largest
from lowering.machine.target import Target

BUTTERFLY = Pass("Butterfly", 29, 10.0)
FLOPS_PER_ELEMENT = 5


def fft(op: Operation, target: Target) -> Cost:
    """Passes over the last axes, the innermost first."""
    shape = largest((*op.operands, *op.results))
    lengths: Any = op.param("fft_lengths", shape.dims[-1:])
    if not shape.elements:
        return FREE
    found: list[Cost] = []
    for i in range(min(len(lengths), len(shape.dims))):
        row, stride = shape.dims[-1 - i], math.prod(shape.dims[len(shape.dims) - i :])
        found.append(passes(shape, row, stride, doubling(row), BUTTERFLY, target))
    phases = tuple(phase for cost in found for phase in cost.phases)
    if not phases:
        return FREE
    flops = float(shape.elements * FLOPS_PER_ELEMENT * len(phases))
    return dc.replace(found[0], phases=phases, flops=flops, source="default")


RULES: dict[str, Rule] = {"fft": fft}
