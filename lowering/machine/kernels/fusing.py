"""Fusion of operations: elementwise chains, a cast and a reduction, a scatter and a sum."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from lowering.jaxprs import Literal, user_line
from lowering.machine.kernels.items import Entry, Item, Listing, transform_bodies, without_literals
from lowering.machine.kernels.uses import bytes_that_nothing_else_reads, count_reads

_HALVES = ("float16", "bfloat16")


def fuse_elementwise_chains(
    listing: Listing,
    is_elementwise: Callable[[str], bool],
    max_operations: int = 8,
) -> Listing:
    """Returns the listing with each chain of elementwise operations as one item.

    A chain is a tree of elementwise operations on equally many elements, all of whose inner
    values are used once; it runs where its last operation stands (docs/hardware.md, Passes:
    expression outliner, up to eight operations). A reduction takes halves as they are and sums in
    float32, so the cast that JAX puts in front of it is none of the chain's. Bodies of loops and
    branches have chains of their own. In `marks.keep_lines_apart` a chain is of one of the user's
    lines.

    Args:
      listing: what runs.
      is_elementwise: tells elementwise primitives by their names.
      max_operations: the most of a chain.
    """
    listing = transform_bodies(
        listing, lambda body: fuse_elementwise_chains(body, is_elementwise, max_operations)
    )
    return _Fuser(listing, is_elementwise, max_operations).fuse_listing()


class _Fuser:
    def __init__(
        self, listing: Listing, is_elementwise: Callable[[str], bool], max_operations: int
    ) -> None:
        self._listing, self._shapes = listing, list(listing.shapes)
        self._is_elementwise, self._most = is_elementwise, max_operations
        self._uses = count_reads(listing)
        self._items: list[Entry | None] = []
        self._made_at: dict[int, int] = {}

    def fuse_listing(self) -> Listing:
        for item in self._listing.items:
            if isinstance(item, Item) and len(item.writes) == 1:
                if (fused_scatter := self._fuse_scatter_and_add(item)) is not None:
                    item = fused_scatter
                elif self._is_elementwise(item.operations[-1].name):
                    item = self._absorb_producers(item)
                elif item.operations[-1].name.startswith(("reduce_", "arg")):
                    item = self._remove_cast(item)
            self._made_at.update((value, len(self._items)) for value in item.writes)
            self._items.append(item)
        items = tuple(item for item in self._items if item is not None)
        return dc.replace(self._listing, shapes=tuple(self._shapes), items=items)

    def _item_that_makes(self, value: int | None) -> Item | None:
        """Returns the item that makes a value, or None."""
        item = self._items[self._made_at[value]] if value in self._made_at else None
        return item if isinstance(item, Item) else None

    def _elementwise_producer(self, value: int | None, reader: Item) -> Item | None:
        """Returns the elementwise item of the reader's block that makes a value for it alone."""
        item = self._item_that_makes(value)
        if value is None or item is None or self._uses[value] != 1 or item.block != reader.block:
            return None
        return item if self._is_elementwise(item.operations[-1].name) else None

    def _absorb_producers(self, item: Item) -> Item:
        """Merges producers of operands that only this item reads into it and unlists them."""
        operations, reads = item.operations, list[int | None]()
        elements = self._shapes[item.writes[0]].elements
        ready = self._index_when_ready(item)
        for value in item.reads:
            producer = self._elementwise_producer(value, item)
            if (
                producer is not None
                and value is not None
                and self._shapes[value].elements == elements
                and len(operations) + len(producer.operations) <= self._most
                and _may_share_a_chain(producer, item)
                and (self._made_at[value] > ready or not self._frees_memory(producer))
            ):
                self._items[self._made_at[value]] = None
                operations = (*producer.operations, *operations)
                reads.extend(producer.reads)
                value = None
            reads.append(value)
        return dc.replace(item, operations=operations, reads=tuple(reads))

    def _index_when_ready(self, item: Item) -> int:
        """Returns the index of the last item that makes an operand which no chain makes."""
        operands = [
            value
            for value in without_literals(item.reads)
            if self._elementwise_producer(value, item) is None
        ]
        return max((self._made_at.get(value, -1) for value in operands), default=-1)

    def _frees_memory(self, producer: Item) -> bool:
        """Returns whether a chain ends the life of more bytes than it makes."""
        freed_bytes = bytes_that_nothing_else_reads(producer.reads, self._uses, self._shapes)
        return freed_bytes > self._shapes[producer.writes[0]].bytes

    def _fuse_scatter_and_add(self, item: Item) -> Item | None:
        """Returns one scatter-add for a scatter into zeros that is added to a sum, or None.

        The original had such a pass for the gradients of embeddings.
        """
        if item.operations[0].name not in ("add", "add_any"):
            return None
        for value, summand in zip(item.reads, reversed(item.reads), strict=True):
            scatter = self._item_that_makes(value)
            if value is None or summand is None or scatter is None or self._uses[value] != 1:
                continue
            if scatter.operations[0].name == "scatter-add" and self._is_broadcast_zero(
                scatter.reads[0]
            ):
                self._items[self._made_at[value]] = None
                reads = (summand, *scatter.reads[1:])
                return dc.replace(scatter, reads=reads, writes=item.writes)
        return None

    def _is_broadcast_zero(self, value: int | None) -> bool:
        """Returns whether a value is a zero, broadcast or not."""
        item = self._item_that_makes(value)
        if item is None or item.operations[0].name != "broadcast_in_dim":
            return False
        source = item.eqn.invars[0] if item.eqn is not None else None
        return isinstance(source, Literal) and not np.any(source.val)

    def _remove_cast(self, item: Item) -> Item:
        """Removes the cast to float32 in front of a reduction of halves."""
        value = item.reads[0] if item.reads else None
        producer = self._elementwise_producer(value, item)
        if value is None or producer is None:
            return item
        *chain, cast = producer.operations
        widens = cast.operands[0].dtype in _HALVES and cast.first_result.dtype == "float32"
        if cast.name != "convert_element_type" or not widens:
            return item
        reduction = item.operations[0]
        halves = dc.replace(reduction, operands=(cast.operands[0], *reduction.operands[1:]))
        index = self._made_at[value]
        if chain:
            self._shapes[value] = cast.operands[0]
            self._items[index] = dc.replace(
                producer, operations=tuple(chain), reads=producer.reads[:-1]
            )
            return dc.replace(item, operations=(halves,))
        self._items[index] = None
        return dc.replace(item, operations=(halves,), reads=(producer.reads[0], *item.reads[1:]))


def _may_share_a_chain(one: Item, other: Item) -> bool:
    """Returns whether two items may be in one chain; those of which one says so, by line only."""
    if one.fuses_lines and other.fuses_lines:
        return True
    if one.eqn is None or other.eqn is None or one.backward != other.backward:
        return False
    return user_line(one.eqn) == user_line(other.eqn)
