"""The cost of several convolutions at the same time, each on tiles of its own.

As the original's parallel plans (poplibs: MultiConvolution, options `perConvReservedTiles` and
`cycleBackOff`): the largest is planned first, on all tiles but those that are reserved for the
others, and then gives back as many tiles as it can without taking much longer.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.machine.cost import Cost, Operation
from lowering.machine.planner.product_rule import product_cost
from lowering.machine.target import Target

MULTI_CONV = "multi_conv"
"""The name of the operation, and of the parameter of its parts that holds the options."""

RESERVED_TILES = 50
CYCLE_BACK_OFF = 0.1
_SHARES = (0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625)


def multi_conv_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of convolutions side by side, as long as the slowest of them.

    Args:
      op: has the convolutions as its parameter `parts`, and the options.
      target: the chip.
    """
    parts: Sequence[Operation] = op.param("parts")
    reserved_tiles = int(op.param("perConvReservedTiles", RESERVED_TILES))
    back_off = float(op.param("cycleBackOff", CYCLE_BACK_OFF))
    costs = _plan_side_by_side(parts, reserved_tiles, back_off, target)
    slowest = max(costs, key=lambda cost: _cycles_of_cost(cost, target))
    return Cost(
        phases=slowest.phases,
        repeats=slowest.repeats,
        temporary_bytes=max(cost.temporary_bytes for cost in costs),
        vertices=tuple(vertices for cost in costs for vertices in cost.vertices),
        flops=sum(cost.flops for cost in costs),
        units=slowest.units,
        operands=tuple(
            wanted_layout for cost in costs for wanted_layout in cost.operands or (None, None)
        ),
        results=tuple(wanted for cost in costs for wanted in cost.results or (None,)),
    )


def _plan_side_by_side(
    parts: Sequence[Operation], reserved_tiles: int, back_off: float, target: Target
) -> list[Cost]:
    """Returns the cost of each part on its own tiles, in the order of the parts."""
    costs_on_all_tiles = [product_cost(part, target) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: -costs_on_all_tiles[i].flops)
    free_tiles, slowest = target.tiles_per_ipu, 0.0
    cost_of_part: dict[int, Cost] = {}
    for position, i in enumerate(order):
        waiting = len(order) - 1 - position
        reserved_per_part = min(reserved_tiles, free_tiles // (waiting + 1))
        allowed_tiles = max(1, free_tiles - reserved_per_part * waiting)
        cost = _cost_on_tiles(parts[i], allowed_tiles, target)
        bound = max(slowest, _cycles_of_cost(cost, target) * (1 + back_off * waiting))
        used_tiles = allowed_tiles
        for fraction in _SHARES if waiting else ():
            fewer = _cost_on_tiles(parts[i], max(1, int(allowed_tiles * fraction)), target)
            if _cycles_of_cost(fewer, target) > bound:
                break
            cost, used_tiles = fewer, max(1, int(allowed_tiles * fraction))
        cost_of_part[i] = cost
        slowest = max(slowest, _cycles_of_cost(cost, target))
        free_tiles = max(1, free_tiles - used_tiles)
    return [cost_of_part[i] for i in range(len(parts))]


def _cost_on_tiles(part: Operation, tiles: int, target: Target) -> Cost:
    return product_cost(part, dc.replace(target, tiles_per_ipu=tiles))


def _cycles_of_cost(cost: Cost, target: Target) -> float:
    return cost.cycles_with_exchange(
        target.exchange_bytes, target.exchange_cycles, target.sync_cycles
    )
