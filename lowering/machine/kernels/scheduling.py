"""The order in which a kernel's items run, where the jaxpr leaves a choice."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

from lowering.machine.kernels.items import Item, Listing, with_bodies
from lowering.machine.kernels.uses import ended_bytes, uses_of


def scheduled(listing: Listing, is_view: Callable[[str], bool]) -> Listing:
    """The listing with what frees memory as early as it can run.

    The original's scheduler looked at liveness (docs/hardware.md, Passes). What matters most
    is done here: an item that leaves no more alive than it ends, as the addition of a gradient to
    its accumulator does, runs right behind the item that it waits for. So it is in bodies of loops
    and branches.
    """
    listing = with_bodies(listing, lambda body: scheduled(body, is_view))
    uses = uses_of(listing)
    made_at: dict[int, tuple[int, int]] = {}
    places: list[tuple[int, int]] = []
    for i, item in enumerate(listing.items):
        place = (i, 0)
        if isinstance(item, Item) and _frees(item, listing, uses, is_view):
            base, depth = max((made_at[v] for v in item.reads if v in made_at), default=(i, -1))
            place = (base, depth + 1)
        made_at.update((value, place) for value in item.writes)
        places.append(place)
    order = sorted(range(len(places)), key=places.__getitem__)
    return dc.replace(listing, items=tuple(listing.items[i] for i in order))


def _frees(
    item: Item, listing: Listing, uses: dict[int, int], is_view: Callable[[str], bool]
) -> bool:
    """Whether an item ends at least as many bytes of tensors as it begins."""
    if is_view(item.operations[-1].name):
        return True
    begun = sum(listing.shapes[value].bytes for value in item.writes)
    return ended_bytes(item.reads, uses, listing.shapes) >= begun
