"""The share of memory that each product of a kernel may fill.

A share stands for a plan: products get the least share that has theirs. So a kernel is modelled
anew only under options that change a plan of it, and products of one plan share their code.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from lowering.machine.cost import Operation
from lowering.machine.kernels.items import Choice, Entry, Item, Listing, Loop, transform_bodies
from lowering.machine.kernels.listing import PLANNED, PlanOptions
from lowering.machine.planner import MULTI_CONV, least_equal_proportion
from lowering.machine.target import Target

Proportions: TypeAlias = Mapping[Operation, Operation]
"""Operations with their shares, by what they are without."""


def find_proportions(listing: Listing, plans: PlanOptions, target: Target) -> Proportions:
    """Returns the products of a listing with the shares that options of the planner give them.

    Args:
      listing: operations without shares.
      plans: the options of the planner.
      target: the chip.
    """
    found: dict[Operation, Operation] = {}
    for operation in _walk_operations(listing):
        if operation not in found and operation.name in (*PLANNED, MULTI_CONV):
            found[operation] = _with_proportion(operation, plans, target)
    return found


def set_proportions(listing: Listing, proportions: Proportions) -> Listing:
    """Returns a listing whose products have their shares."""
    listing = transform_bodies(listing, lambda body: set_proportions(body, proportions))
    return dc.replace(
        listing, items=tuple(_change_operations(entry, proportions) for entry in listing.items)
    )


def _walk_operations(listing: Listing) -> Iterator[Operation]:
    for entry in listing.items:
        match entry:
            case Item():
                yield from entry.operations
            case Loop(bodies) | Choice(bodies):
                for body in bodies:
                    yield from _walk_operations(body)


def _with_proportion(operation: Operation, plans: PlanOptions, target: Target) -> Operation:
    proportion = plans.proportion_of(operation.name)
    if operation.name != MULTI_CONV:
        return dc.replace(
            operation, memory_proportion=least_equal_proportion(operation, target, proportion)
        )
    # Its parts are planned for fewer tiles, on which another share may stand for their plan.
    parts = tuple(
        dc.replace(part, memory_proportion=plans.proportion_of(part.name))
        for part in operation.param("parts")
    )
    return dc.replace(operation, params=(("parts", parts), *operation.params[1:]))


def _change_operations(entry: Entry, proportions: Proportions) -> Entry:
    if not isinstance(entry, Item) or not any(op in proportions for op in entry.operations):
        return entry
    return dc.replace(entry, operations=tuple(proportions.get(op, op) for op in entry.operations))
