"""Which convolutions run at the same time, each on tiles of its own."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Hashable, Sequence

from lowering.machine.cost import Operation
from lowering.machine.kernels.items import Entry, Item, Listing, values, with_bodies
from lowering.machine.planner.side_by_side import MULTI_CONV
from lowering.order import in_order


def side_by_side(listing: Listing) -> Listing:
    """The listing with the convolutions of a multi-convolution as one item each.

    Convolutions go together whose scopes have the same options, all of the forward pass or all of
    the backward pass, and that have as many such convolutions on the longest way to them, so that
    none needs another. They run where the first of them stood; what the others need goes first.
    """
    listing = with_bodies(listing, side_by_side)
    groups = _groups(listing.items)
    if not groups:
        return listing
    first = {members[0]: members for members in groups}
    gone = {member for members in groups for member in members[1:]}
    items = [
        _together([listing.items[i] for i in first[i]]) if i in first else item
        for i, item in enumerate(listing.items)
        if i not in gone
    ]
    makers = {value: number for number, item in enumerate(items) for value in item.writes}
    needs = [[makers[v] for v in values(item.reads) if v in makers] for item in items]
    return dc.replace(listing, items=tuple(items[number] for number in in_order(needs)))


def _options(entry: Entry) -> tuple[tuple[str, str], ...] | None:
    """Of the multi-convolution that an entry belongs to; None for all others."""
    operations = entry.operations if isinstance(entry, Item) else ()
    return next((operation.param(MULTI_CONV) for operation in operations), None)


def _groups(items: Sequence[Entry]) -> list[list[int]]:
    levels: dict[int, int] = {}
    groups: dict[Hashable, list[int]] = {}
    for index, entry in enumerate(items):
        level = max((levels.get(value, 0) for value in values(entry.reads)), default=0)
        options = _options(entry)
        if options is not None and isinstance(entry, Item):
            groups.setdefault((level, options, entry.backward), []).append(index)
            level += 1
        levels.update(dict.fromkeys(entry.writes, level))
    return [members for members in groups.values() if len(members) > 1]


def _together(entries: Sequence[Entry]) -> Item:
    items = [entry for entry in entries if isinstance(entry, Item)]
    parts = tuple(item.operations[0] for item in items)
    operation = Operation(
        name=MULTI_CONV,
        operands=tuple(shape for part in parts for shape in part.operands),
        results=tuple(shape for part in parts for shape in part.results),
        params=(("parts", parts), *(parts[0].param(MULTI_CONV))),
    )
    reads = tuple(value for item in items for value in item.reads)
    writes = tuple(value for item in items for value in item.writes)
    return dc.replace(items[0], operations=(operation,), reads=reads, writes=writes)
