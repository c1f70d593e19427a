"""How the tensors of a kernel lie: on which tiles, in which order, and whose memory they are."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lowering.machine.cost import Operation, Shape, Wanted
from lowering.machine.mapping import TileMapping, linear, spread

View: TypeAlias = tuple[tuple[str, tuple[Any, ...]], ...]
"""What has been done to a tensor without moving it: `(("transpose", (1, 0)),)`; `()` as it is."""


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

    def holding(self, shape: Shape) -> Laid:
        """The same for a tensor of as many elements of another type."""
        if shape.element_bytes == self.mapping.element_bytes:
            return self
        return Laid(dc.replace(self.mapping, element_bytes=shape.element_bytes), self.view)


def composed(view: View, step: tuple[str, tuple[Any, ...]]) -> View:
    """A view of a view: transpositions that undo one another vanish."""
    kind, detail = step
    if kind == "transpose":
        if view and view[-1][0] == "transpose":
            detail = tuple(view[-1][1][axis] for axis in detail)
            view = view[:-1]
        if detail == tuple(range(len(detail))):
            return view
    # A reshape keeps the order of the elements; it matters on top of a transposition only.
    if kind == "reshape" and not view:
        return view
    return (*view, (kind, detail))


def step_of(operation: Operation) -> tuple[str, tuple[Any, ...]]:
    """What an operation that moves nothing does to the order of its operand's elements."""
    result = operation.result
    if operation.name == "transpose":
        return "transpose", tuple(operation.param("permutation"))
    same = operation.operands[0].elements == result.elements and operation.name != "rev"
    return ("reshape" if same else operation.name), result.dims


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
        self._seen: dict[int, tuple[int, View]] = {i: (i, ()) for i in range(len(shapes))}
        self._laid: dict[int, Laid] = {
            value: laid for value, laid in zip(operands, given, strict=True) if laid is not None
        }

    def owner(self, value: int) -> int:
        """The value whose memory this one is."""
        return self._seen[value][0]

    def laid(self, value: int) -> Laid:
        """How a value lies; one that nobody has laid out yet becomes linear."""
        owner, view = self._seen[value]
        if owner not in self._laid:
            self._laid[owner] = self.linear(self._shapes[owner])
        laid = self._laid[owner]
        if not view:
            return laid
        seen = laid.view
        for step in view:
            seen = composed(seen, step)
        return Laid(laid.mapping, seen)

    def is_free(self, value: int) -> bool:
        """Whether nobody has laid out a value's owner yet."""
        return self._seen[value][0] not in self._laid

    def settle(self, value: int, laid: Laid) -> None:
        """Lays out an owner that nobody has laid out before."""
        if self._seen[value] == (value, ()):
            self._laid.setdefault(value, laid)

    def put(self, value: int, laid: Laid) -> None:
        """A value of its own."""
        self._seen[value] = (value, ())
        self._laid[value] = laid

    def see(self, value: int, source: int, operation: Operation) -> None:
        """A value that is a view of another."""
        owner, view = self._seen[source]
        self._seen[value] = (owner, composed(view, step_of(operation)))

    def ask(self, value: int, wanted: Wanted) -> None:
        """Lays out a value's owner as a plan wants the value, if nobody has done so before.

        The original's allocation finder did so behind reshapes and transpositions.
        """
        owner, view = self._seen[value]
        if owner in self._laid or self._shapes[owner].elements != self._shapes[value].elements:
            return
        laid = self.wanted(self._shapes[owner], wanted)
        for kind, detail in reversed(view):
            if kind == "transpose":
                inverse = tuple(int(axis) for axis in np.argsort(detail))
                laid = Laid(laid.mapping, composed(laid.view, (kind, inverse)))
        self._laid[owner] = laid

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
