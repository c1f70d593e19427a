"""Costs of a kernel for operands that begin on other tiles.

Nothing that a kernel costs depends on the tiles on which its operands begin: only what lies where
does. So a kernel is modelled once with a stand-in for each of these tiles, and its cost gets the
tiles of each run afterwards.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.machine.kernels.layouts import TensorLayout, begin_at_tile
from lowering.machine.kernels.totals import KernelCost


def use_stand_ins(operands: Sequence[TensorLayout | None]) -> tuple[TensorLayout | None, ...]:
    """Returns the layouts of operands, with stand-ins for the tiles on which they begin.

    The stand-in for the tile of the first operand is -1, that for the second one's -2, and so on.
    """
    return tuple(
        None if layout is None else begin_at_tile(layout, ~i) for i, layout in enumerate(operands)
    )


def replace_stand_ins(cost: KernelCost, operands: Sequence[TensorLayout | None]) -> KernelCost:
    """Returns a cost that was found with stand-ins, for operands with these layouts."""
    tiles = tuple(layout.mapping.first_tile if layout else None for layout in operands)
    if not any(operands):
        return cost
    return dc.replace(
        cost,
        operands=tuple(
            laid.for_operands(tiles) if given is None else given
            for laid, given in zip(cost.operands, operands, strict=True)
        ),
        results=tuple(layout.for_operands(tiles) for layout in cost.results),
        operand_tiles=tiles,
    )
