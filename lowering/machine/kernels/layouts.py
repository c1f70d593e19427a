"""How the tensors of a kernel lie: on which tiles, in which order, and whose memory they are."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import TypeAlias

from lowering.machine.cost import Operation, Shape, Wanted
from lowering.machine.kernels.views import MOVES, View, inverse, seen
from lowering.machine.mapping import TileMapping, linear, spread


@dc.dataclass(frozen=True, slots=True)
class Laid:
    """Where a tensor lies, and how its elements follow each other there.

    Attributes:
      mapping: which tile holds how much.
      view: what turns the mapping's order of elements into the tensor's.
    """

    mapping: TileMapping
    view: View = ()

    @property
    def order(self) -> tuple[str, View]:
        """Equal for tensors that can be worked on together without moving either."""
        return self.mapping.layout, self.view

    @property
    def room(self) -> tuple[tuple[str, View], int]:
        """Equal for tensors that can take each other's memory."""
        return self.order, self.mapping.total_bytes

    def holding(self, shape: Shape) -> Laid:
        """The same for a tensor of as many elements of another type."""
        if shape.element_bytes == self.mapping.element_bytes:
            return self
        return Laid(dc.replace(self.mapping, element_bytes=shape.element_bytes), self.view)

    def suits(self, shape: Shape) -> bool:
        """Whether a tensor can lie so: there is one place for each of its elements."""
        return self.mapping.elements == shape.elements and inverse(self.view) is not None


_Steps: TypeAlias = tuple[tuple[Operation, int], ...]
"""The operations that lead from a tensor to a view of it, and which of their results it is."""


class Layouts:
    """The layouts of one kernel's values, as they become known.

    Args:
      shapes: of every value.
      operands: the kernel's.
      given: how these lie; None for those that the kernel may lay out.
      tiles: how many tiles there are.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        operands: Sequence[int],
        given: Sequence[Laid | None],
        tiles: int,
    ) -> None:
        self._shapes, self._tiles = shapes, tiles
        self._next_tile = 0
        self._seen: dict[int, tuple[int, _Steps]] = {i: (i, ()) for i in range(len(shapes))}
        self._laid: dict[int, Laid] = {
            value: laid for value, laid in zip(operands, given, strict=True) if laid is not None
        }

    def owner(self, value: int) -> int:
        """The value whose memory this one is."""
        return self._seen[value][0]

    def laid(self, value: int) -> Laid:
        """How a value lies; one that nobody has laid out yet becomes linear."""
        owner = self.owner(value)
        if owner not in self._laid:
            self._laid[owner] = self.linear(self._shapes[owner])
        laid = self._laid[owner]
        return Laid(laid.mapping, self._from(value, laid.view))

    def is_whole(self, value: int) -> bool:
        """Whether a value has memory for each of its elements: it is no part, and not repeated."""
        owner = self.owner(value)
        if self.is_free(value):
            same = self._shapes[owner].elements == self._shapes[value].elements
            return same and inverse(self._from(value, ())) is not None
        return self.laid(value).suits(self._shapes[value])

    def is_moved(self, value: int) -> bool:
        """Whether a value's elements are not its owner's, one after the other."""
        return bool(self._from(value, ()))

    def is_free(self, value: int) -> bool:
        """Whether nobody has laid out a value's owner yet."""
        return self.owner(value) not in self._laid

    def known(self, value: int | None) -> Laid | None:
        """How a value lies, if somebody has laid it out."""
        return None if value is None or self.is_free(value) else self.laid(value)

    def settle(self, value: int, laid: Laid) -> None:
        """Lays out an owner that nobody has laid out before."""
        if self.owner(value) == value:
            self._laid.setdefault(value, laid)

    def put(self, value: int, laid: Laid) -> None:
        """A value of its own."""
        self._seen[value] = (value, ())
        self._laid[value] = laid

    def see(self, value: int, source: int, operation: Operation, part: int = 0) -> None:
        """A value that is a view of another: one of the results of an operation."""
        owner, steps = self._seen[source]
        if operation.name in MOVES:
            steps = (*steps, (operation, part))
        self._seen[value] = owner, steps

    def ask(self, value: int, wanted: Wanted) -> None:
        """Lays out a value's owner as a plan wants the value, if nobody has done so before.

        The original's allocation finder did so behind reshapes and transpositions.
        """
        owner = self.owner(value)
        if not self.is_free(value) or not self.is_whole(value):
            return
        laid = self.wanted(self._shapes[owner], wanted)
        self._laid[owner] = Laid(laid.mapping, inverse(self._from(value, ())) or ())

    def _from(self, value: int, view: View) -> View:
        """How a value's elements follow each other, if its owner's follow each other so."""
        for operation, part in self._seen[value][1]:
            view = seen(view, operation, part)
        return view

    def wanted(self, shape: Shape, wanted: Wanted) -> Laid:
        """The layout that a plan asks for."""
        mapping = spread(
            shape.elements, shape.element_bytes, wanted.used, self._tiles, layout=wanted.layout
        )
        return Laid(mapping)

    def linear(self, shape: Shape) -> Laid:
        """A linear mapping from the tile on after the last one's; one of all tiles stays there."""
        mapping = linear(shape.elements, shape.element_bytes, self._tiles)
        if mapping.used < self._tiles:
            width, mapping = mapping.used, mapping.moved_to(self._next_tile)
            self._next_tile = (self._next_tile + width) % self._tiles
        return Laid(mapping)
