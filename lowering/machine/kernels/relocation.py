"""Costs of a kernel for operands that begin on other tiles.

Nothing that a kernel costs depends on the tiles on which its operands begin: only what lies where
does. So a kernel is modelled once with a stand-in for each of these tiles, and its cost gets the
tiles of each run afterwards.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lowering.machine.kernels.alive import LiveTensor
from lowering.machine.kernels.kernel_memory import KernelMemory, MemoryEvent
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.totals import KernelCost

_Tiles: TypeAlias = Mapping[int, int]
"""The tile for which each stand-in stands: -1 for that of the first operand, and so on."""


def use_stand_ins(operands: Sequence[TensorLayout | None]) -> tuple[TensorLayout | None, ...]:
    """Returns the layouts of operands, with stand-ins for the tiles on which they begin."""
    return tuple(
        None if layout is None else _begin_at(layout, -1 - i) for i, layout in enumerate(operands)
    )


def replace_stand_ins(cost: KernelCost, operands: Sequence[TensorLayout | None]) -> KernelCost:
    """Returns a cost that was found with stand-ins, for operands with these layouts."""
    tiles = {
        -1 - i: layout.mapping.first_tile for i, layout in enumerate(operands) if layout is not None
    }
    if not tiles:
        return cost
    return dc.replace(
        cost,
        operands=tuple(
            _relocate_layout(laid, tiles) if given is None else given
            for laid, given in zip(cost.operands, operands, strict=True)
        ),
        results=tuple(_relocate_layout(layout, tiles) for layout in cost.results),
        life=_relocate_memory(cost.life, tiles),
        code={
            signature: dc.replace(use, first_tile=tiles[use.first_tile])
            if use.first_tile < 0
            else use
            for signature, use in cost.code.items()
        },
        totals={
            number: dc.replace(total, first_tile=tiles[total.first_tile])
            if total.first_tile < 0
            else total
            for number, total in cost.totals.items()
        },
    )


@functools.lru_cache(maxsize=4096)
def _begin_at(layout: TensorLayout, tile: int) -> TensorLayout:
    return dc.replace(layout, mapping=dc.replace(layout.mapping, first_tile=tile))


def _relocate_layout(layout: TensorLayout, tiles: _Tiles) -> TensorLayout:
    first_tile = layout.mapping.first_tile
    return layout if first_tile >= 0 else _begin_at(layout, tiles[first_tile])


def _relocate_tensor(live: LiveTensor, tiles: _Tiles) -> LiveTensor:
    layout = _relocate_layout(live.laid, tiles)
    return live if layout is live.laid else dc.replace(live, laid=layout)


def _relocate_memory(life: KernelMemory, tiles: _Tiles) -> KernelMemory:
    return life.with_events([_relocate_event(event, tiles) for event in life.events])


def _relocate_event(event: MemoryEvent, tiles: _Tiles) -> MemoryEvent:
    stays = all(live.laid.mapping.first_tile >= 0 for live in event.births.values())
    if stays and not event.inner:
        return event
    births = {owner: _relocate_tensor(live, tiles) for owner, live in event.births.items()}
    inner = [dc.replace(body, life=_relocate_memory(body.life, tiles)) for body in event.inner]
    return dc.replace(event, births=births, inner=inner)
