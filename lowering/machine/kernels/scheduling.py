"""The order of a kernel's items, where the jaxpr leaves a choice."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

from lowering.machine.kernels.items import Item, Listing, transform_bodies
from lowering.machine.kernels.uses import bytes_that_nothing_else_reads, count_reads


def schedule_items(listing: Listing, is_view: Callable[[str], bool]) -> Listing:
    """Moves each item that frees memory as far to the front as it can run.

    The original's scheduler looked at liveness (docs/hardware.md, Passes). Only its main rule is
    applied here: an item that frees at least as many bytes as it makes, such as the addition of a
    gradient to its accumulator, runs right behind the item that it waits for. The same holds in
    bodies of loops and branches.
    """
    listing = transform_bodies(listing, lambda body: schedule_items(body, is_view))
    uses = count_reads(listing)
    position_of_maker: dict[int, tuple[int, int]] = {}
    positions: list[tuple[int, int]] = []
    for i, item in enumerate(listing.items):
        position = (i, 0)
        if isinstance(item, Item) and _frees_its_bytes(item, listing, uses, is_view):
            base, depth = max(
                (position_of_maker[v] for v in item.reads if v in position_of_maker),
                default=(i, -1),
            )
            position = (base, depth + 1)
        position_of_maker.update((value, position) for value in item.writes)
        positions.append(position)
    order = sorted(range(len(positions)), key=positions.__getitem__)
    return dc.replace(listing, items=tuple(listing.items[i] for i in order))


def _frees_its_bytes(
    item: Item, listing: Listing, uses: dict[int, int], is_view: Callable[[str], bool]
) -> bool:
    """Returns whether an item frees at least as many bytes of tensors as it makes."""
    if is_view(item.operations[-1].name):
        return True
    begun = sum(listing.shapes[value].bytes for value in item.writes)
    return bytes_that_nothing_else_reads(item.reads, uses, listing.shapes) >= begun
