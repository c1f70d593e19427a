"""Algorithms that consist of operations which have rules of their own."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lowering.machine.cost import Cost, Operation, Phase, Shape, Vertices
from lowering.machine.planner import product_cost
from lowering.machine.primitives.elementwise import elementwise
from lowering.machine.primitives.fusion import fuse_elementwise
from lowering.machine.primitives.vertices import FREE
from lowering.machine.target import Target

Part: TypeAlias = tuple[int, Cost]
"""How often something runs, and what it costs: of shapes that are means, where they differ."""


def assembled(parts: Iterable[Part], *, unrolled: bool = False) -> Cost:
    """All parts one after the other; nothing overlaps.

    The supersteps of a part stand together, even where they take turns with those of others.

    Args:
      parts: what runs.
      unrolled: whether every time that a part runs has code of its own.
    """
    phases, vertices = list[Phase](), list[Vertices]()
    flops = temporary = 0.0
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
        temporary = max(temporary, cost.temporary_bytes)
    if not phases:
        return FREE
    return Cost(
        phases=tuple(phases),
        temporary_bytes=temporary,
        vertices=tuple(dict.fromkeys(vertices)),
        flops=flops,
    )


def chain(names: Sequence[str], shape: Shape, target: Target) -> Cost:
    """Elementwise operations on arrays of one shape, one on the result of the other."""
    arrays = {"select_n": (Shape(shape.dims, "bool"), shape, shape)}
    operations = [Operation(name, arrays.get(name, (shape, shape)), (shape,)) for name in names]
    if len(operations) == 1:
        return elementwise(operations[0], target)
    return fuse_elementwise(operations, target)


def product(batch: int, rows: int, inner: int, columns: int, dtype: str, target: Target) -> Cost:
    """Matrix products of [rows, inner] and [inner, columns], planned."""
    operands = (Shape((batch, rows, inner), dtype), Shape((batch, inner, columns), dtype))
    numbers = (((2,), (1,)), ((0,), (0,)))
    result = Shape((batch, rows, columns), dtype)
    params = (("dimension_numbers", numbers),)
    return product_cost(Operation("dot_general", operands, (result,), params), target)
