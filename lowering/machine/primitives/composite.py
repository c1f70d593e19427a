"""The cost of algorithms that consist of operations with rules of their own."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lowering.machine.cost import Cost, Operation, Phase, Shape, Units, Vertices
from lowering.machine.planner import product_cost
from lowering.machine.primitives.elementwise_cost import elementwise_cost
from lowering.machine.primitives.fusion import elementwise_chain_cost
from lowering.machine.primitives.rule_helpers import FREE
from lowering.machine.target import Target

Part: TypeAlias = tuple[int, Cost]
"""How often an operation runs, and its cost; where shapes differ, that of their mean."""


def sum_costs(parts: Iterable[Part], *, unrolled: bool = False) -> Cost:
    """Returns the cost of parts that run one after the other; nothing overlaps.

    The supersteps of a part stand together, even where they take turns with those of others.

    Args:
      parts: the parts, with how often each runs.
      unrolled: whether every time that a part runs has code of its own.
    """
    phases, vertices = list[Phase](), list[Vertices]()
    flops = temporary = 0.0
    units: Units | None = None
    for times, cost in parts:
        runs = times * cost.repeats
        copies = runs if unrolled else min(runs, 1)
        phases += [
            dc.replace(phase, times=phase.times * runs, unrolled=unrolled)
            for phase in cost.phases
            if runs
        ]
        vertices += [dc.replace(v, copies=v.copies * copies) for v in cost.vertices if copies]
        flops += cost.flops * times
        units = units or cost.units
        temporary = max(temporary, cost.temporary_bytes)
    if not phases:
        return FREE
    return Cost(
        phases=tuple(phases),
        temporary_bytes=temporary,
        vertices=tuple(dict.fromkeys(vertices)),
        flops=flops,
        units=units,
    )


def cost_of_chain(names: Sequence[str], shape: Shape, target: Target) -> Cost:
    """Returns the cost of elementwise operations of one shape, each on the last result."""
    arrays = {"select_n": (Shape(shape.dims, "bool"), shape, shape)}
    operations = [Operation(name, arrays.get(name, (shape, shape)), (shape,)) for name in names]
    if len(operations) == 1:
        return elementwise_cost(operations[0], target)
    return elementwise_chain_cost(operations, target)


def cost_of_matmul(
    batch: int, rows: int, contracted: int, columns: int, dtype: str, target: Target
) -> Cost:
    """Plans matrix products of [rows, contracted] and [contracted, columns]; returns the cost."""
    operands = (Shape((batch, rows, contracted), dtype), Shape((batch, contracted, columns), dtype))
    numbers = (((2,), (1,)), ((0,), (0,)))
    result = Shape((batch, rows, columns), dtype)
    params = (("dimension_numbers", numbers),)
    return product_cost(Operation("dot_general", operands, (result,), params), target)
