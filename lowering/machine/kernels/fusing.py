"""Which operations run as one: elementwise chains, a cast and a reduction, a scatter and a sum."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from lowering.jaxpr import Literal
from lowering.machine.kernels.items import Entry, Item, Listing, values, with_bodies
from lowering.machine.kernels.uses import ended_bytes, uses_of

_HALVES = ("float16", "bfloat16")


def fused(listing: Listing, is_elementwise: Callable[[str], bool], most: int = 8) -> Listing:
    """The listing with elementwise chains as one item each, as the original outlined expressions.

    A chain is a tree of elementwise operations on equally many elements, all of whose inner
    values are used once; it runs where its last operation stands (docs/hardware.md, Passes:
    expression outliner, up to eight operations). A reduction takes halves as they are and sums in
    float32, so the cast that JAX puts in front of it is none of the chain's. Bodies of loops and
    branches have chains of their own.
    """
    listing = with_bodies(listing, lambda body: fused(body, is_elementwise, most))
    return _Fuser(listing, is_elementwise, most).run()


class _Fuser:
    def __init__(self, listing: Listing, is_elementwise: Callable[[str], bool], most: int) -> None:
        self._listing, self._shapes = listing, list(listing.shapes)
        self._is_elementwise, self._most = is_elementwise, most
        self._uses = uses_of(listing)
        self._items: list[Entry | None] = []
        self._made_at: dict[int, int] = {}

    def run(self) -> Listing:
        for item in self._listing.items:
            if isinstance(item, Item) and len(item.writes) == 1:
                if (scattered := self._scattered(item)) is not None:
                    item = scattered
                elif self._is_elementwise(item.operations[-1].name):
                    item = self._absorbed(item)
                elif item.operations[-1].name.startswith(("reduce_", "arg")):
                    item = self._uncast(item)
            self._made_at.update((value, len(self._items)) for value in item.writes)
            self._items.append(item)
        items = tuple(item for item in self._items if item is not None)
        return dc.replace(self._listing, shapes=tuple(self._shapes), items=items)

    def _maker(self, value: int | None) -> Item | None:
        """The item that makes a value."""
        item = self._items[self._made_at[value]] if value in self._made_at else None
        return item if isinstance(item, Item) else None

    def _producer(self, value: int | None, reader: Item) -> Item | None:
        """The elementwise item of the reader's block that makes a value which it alone reads."""
        item = self._maker(value)
        if value is None or item is None or self._uses[value] != 1 or item.block != reader.block:
            return None
        return item if self._is_elementwise(item.operations[-1].name) else None

    def _absorbed(self, item: Item) -> Item:
        """The item with the producers of its operands that only it uses, which leave the list."""
        operations, reads = item.operations, list[int | None]()
        elements = self._shapes[item.writes[0]].elements
        ready = self._ready(item)
        for value in item.reads:
            producer = self._producer(value, item)
            if (
                producer is not None
                and value is not None
                and self._shapes[value].elements == elements
                and len(operations) + len(producer.operations) <= self._most
                and (self._made_at[value] > ready or not self._frees(producer))
            ):
                self._items[self._made_at[value]] = None
                operations = (*producer.operations, *operations)
                reads.extend(producer.reads)
                value = None
            reads.append(value)
        return dc.replace(item, operations=operations, reads=tuple(reads))

    def _ready(self, item: Item) -> int:
        """The place after which all operands that no chain makes are there."""
        others = [value for value in values(item.reads) if self._producer(value, item) is None]
        return max((self._made_at.get(value, -1) for value in others), default=-1)

    def _frees(self, producer: Item) -> bool:
        """Whether a chain ends more bytes than it begins, so that it should not wait."""
        ended = ended_bytes(producer.reads, self._uses, self._shapes)
        return ended > self._shapes[producer.writes[0]].bytes

    def _scattered(self, item: Item) -> Item | None:
        """The addition of rows that were scattered into zeros, as their addition to the other sum.

        So the original's pass over gradients of embeddings did it.
        """
        if item.operations[0].name not in ("add", "add_any"):
            return None
        for value, other in zip(item.reads, reversed(item.reads), strict=True):
            scatter = self._maker(value)
            if value is None or other is None or scatter is None or self._uses[value] != 1:
                continue
            if scatter.operations[0].name == "scatter-add" and self._is_zero(scatter.reads[0]):
                self._items[self._made_at[value]] = None
                reads = (other, *scatter.reads[1:])
                return dc.replace(scatter, reads=reads, writes=item.writes)
        return None

    def _is_zero(self, value: int | None) -> bool:
        """Whether a value is a zero, however often it is repeated."""
        item = self._maker(value)
        if item is None or item.operations[0].name != "broadcast_in_dim":
            return False
        source = item.eqn.invars[0] if item.eqn is not None else None
        return isinstance(source, Literal) and not np.any(source.val)

    def _uncast(self, item: Item) -> Item:
        """A reduction of halves without the cast in front of it."""
        value = item.reads[0] if item.reads else None
        producer = self._producer(value, item)
        if value is None or producer is None:
            return item
        *chain, cast = producer.operations
        widens = cast.operands[0].dtype in _HALVES and cast.result.dtype == "float32"
        if cast.name != "convert_element_type" or not widens:
            return item
        reduction = item.operations[0]
        halves = dc.replace(reduction, operands=(cast.operands[0], *reduction.operands[1:]))
        place = self._made_at[value]
        if chain:
            self._shapes[value] = cast.operands[0]
            self._items[place] = dc.replace(
                producer, operations=tuple(chain), reads=producer.reads[:-1]
            )
            return dc.replace(item, operations=(halves,))
        self._items[place] = None
        return dc.replace(item, operations=(halves,), reads=(producer.reads[0], *item.reads[1:]))
