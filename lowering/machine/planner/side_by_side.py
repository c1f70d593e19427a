"""The cost of several convolutions at the same time, each on tiles of its own.

As the original's parallel plans (poplibs: MultiConvolution, options `perConvReservedTiles` and
`cycleBackOff`): the largest is planned first, on all tiles but those that are reserved for the
others, and then gives back as many tiles as it can without taking much longer.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.machine.cost import Cost, Operation
from lowering.machine.planner.rule import product_cost
from lowering.machine.target import Target

MULTI_CONV = "multi_conv"
"""The operation's name, and the parameter of its parts that holds the options."""

RESERVED_TILES = 50
CYCLE_BACK_OFF = 0.1
_SHARES = (0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625)


def multi_conv_cost(op: Operation, target: Target) -> Cost:
    """What convolutions cost on one IPU that are as long as the slowest of them.

    Args:
      op: has the convolutions as its parameter `parts`, and the options.
      target: the chip.
    """
    parts: Sequence[Operation] = op.param("parts")
    reserved = int(op.param("perConvReservedTiles", RESERVED_TILES))
    back_off = float(op.param("cycleBackOff", CYCLE_BACK_OFF))
    costs = _planned(parts, reserved, back_off, target)
    slowest = max(costs, key=lambda cost: _cycles(cost, target))
    return Cost(
        phases=slowest.phases,
        repeats=slowest.repeats,
        temporary_bytes=max(cost.temporary_bytes for cost in costs),
        vertices=tuple(vertices for cost in costs for vertices in cost.vertices),
        flops=sum(cost.flops for cost in costs),
        operands=tuple(wanted for cost in costs for wanted in cost.operands or (None, None)),
        results=tuple(wanted for cost in costs for wanted in cost.results or (None,)),
    )


def _planned(
    parts: Sequence[Operation], reserved: int, back_off: float, target: Target
) -> list[Cost]:
    """The cost of each part on its tiles, in the order of the parts."""
    whole = [product_cost(part, target) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: -whole[i].flops)
    left, slowest = target.tiles_per_ipu, 0.0
    found: dict[int, Cost] = {}
    for place, i in enumerate(order):
        others = len(order) - 1 - place
        kept = min(reserved, left // (others + 1))
        most = max(1, left - kept * others)
        cost = _on(parts[i], most, target)
        bound = max(slowest, _cycles(cost, target) * (1 + back_off * others))
        used = most
        for share in _SHARES if others else ():
            fewer = _on(parts[i], max(1, int(most * share)), target)
            if _cycles(fewer, target) > bound:
                break
            cost, used = fewer, max(1, int(most * share))
        found[i] = cost
        slowest = max(slowest, _cycles(cost, target))
        left = max(1, left - used)
    return [found[i] for i in range(len(parts))]


def _on(part: Operation, tiles: int, target: Target) -> Cost:
    return product_cost(part, dc.replace(target, tiles_per_ipu=tiles))


def _cycles(cost: Cost, target: Target) -> float:
    return cost.cycles(target.exchange_bytes, target.exchange_cycles, target.sync_cycles)
