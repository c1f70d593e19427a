"""Convolutions of a multi-convolution, grouped to run at the same time on separate tiles."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Hashable, Sequence

from lowering.ground import sort_by_needs
from lowering.machine.cost import Operation
from lowering.machine.kernels.items import Entry, Item, Listing, transform_bodies, without_literals
from lowering.machine.planner.multi_convolution import MULTI_CONV


def group_convolutions(listing: Listing) -> Listing:
    """Returns the listing with the convolutions of a multi-convolution as one item each.

    A group is all convolutions of the forward pass, or all of the backward pass, whose scopes have
    the same options and that have as many such convolutions on the longest path to them, so that
    none needs another. It runs where its first convolution stood; what the others need goes first.
    """
    listing = transform_bodies(listing, group_convolutions)
    groups = _find_convolution_groups(listing.items)
    if not groups:
        return listing
    group_of_first = {members[0]: members for members in groups}
    merged = {member for members in groups for member in members[1:]}
    items = [
        _merge_convolutions([listing.items[i] for i in group_of_first[i]])
        if i in group_of_first
        else item
        for i, item in enumerate(listing.items)
        if i not in merged
    ]
    makers = {value: number for number, item in enumerate(items) for value in item.writes}
    needs = [[makers[v] for v in without_literals(item.reads) if v in makers] for item in items]
    return dc.replace(listing, items=tuple(items[number] for number in sort_by_needs(needs)))


def _multi_conv_options(entry: Entry) -> tuple[tuple[str, str], ...] | None:
    """Returns the options of the multi-convolution that an entry belongs to, or None."""
    operations = entry.operations if isinstance(entry, Item) else ()
    return next((operation.param(MULTI_CONV) for operation in operations), None)


def _find_convolution_groups(items: Sequence[Entry]) -> list[list[int]]:
    levels: dict[int, int] = {}
    groups: dict[Hashable, list[int]] = {}
    for index, entry in enumerate(items):
        level = max((levels.get(value, 0) for value in without_literals(entry.reads)), default=0)
        options = _multi_conv_options(entry)
        if options is not None and isinstance(entry, Item):
            groups.setdefault((level, options, entry.backward), []).append(index)
            level += 1
        levels.update(dict.fromkeys(entry.writes, level))
    return [members for members in groups.values() if len(members) > 1]


def _merge_convolutions(entries: Sequence[Entry]) -> Item:
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
