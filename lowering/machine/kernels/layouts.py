"""The layouts of a kernel's tensors: tiles, order of elements, and whose memory they use."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Sequence
from typing import TypeAlias

from lowering.ground import TileRuns
from lowering.machine.cost import Operation, Shape, WantedLayout
from lowering.machine.kernels.views import MOVES, View, apply_to_view, invert_view
from lowering.machine.mapping import TileMapping, map_by_hand, map_evenly, map_linearly

OrderKey: TypeAlias = tuple[str | TileRuns, View]
"""The name of an order of elements, or the tiles that the user has chosen for them, and a view."""


@dc.dataclass(frozen=True)
class TensorLayout:
    """The layout of a tensor: the tiles that hold it, and the order of its elements there.

    Attributes:
      mapping: the elements on each tile.
      view: the view that turns the mapping's order of elements into the tensor's.
    """

    mapping: TileMapping
    view: View = ()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.mapping, self.view))

    @functools.cached_property
    def order_key(self) -> OrderKey:
        """A key that is equal for tensors which can be worked on together without rearrangement."""
        return self.mapping.by_hand or self.mapping.layout, self.view

    @property
    def is_by_hand(self) -> bool:
        """Whether the user has put the tensor on its tiles."""
        return self.mapping.by_hand is not None

    @functools.cached_property
    def memory_key(self) -> tuple[OrderKey, int]:
        """A key that is equal for tensors which can take each other's memory."""
        return self.order_key, self.mapping.total_bytes

    @functools.cached_property
    def at_first_tile(self) -> TensorLayout:
        """The same layout, beginning on the first tile."""
        return begin_at_tile(self, 0) if self.mapping.first_tile else self

    def for_element_type(self, shape: Shape) -> TensorLayout:
        """Returns the same layout for a tensor of as many elements of another type."""
        if shape.element_bytes == self.mapping.element_bytes:
            return self
        return _change_element_bytes(self, shape.element_bytes)

    def for_operands(self, operand_tiles: OperandTiles) -> TensorLayout:
        """Returns the layout in a kernel whose operands begin on these tiles."""
        first_tile = self.mapping.first_tile
        if first_tile >= 0:
            return self
        return begin_at_tile(self, resolve_first_tile(first_tile, operand_tiles))

    def suits_shape(self, shape: Shape) -> bool:
        """Returns whether a tensor of this shape can have this layout."""
        return self.mapping.elements == shape.elements and invert_view(self.view) is not None


OperandTiles: TypeAlias = tuple[int | None, ...]
"""The tile on which each operand of a kernel begins; see `relocation`."""


def resolve_first_tile(first_tile: int, operand_tiles: OperandTiles) -> int:
    """Returns the tile for which a stand-in stands, or the tile itself if it is none."""
    return first_tile if first_tile >= 0 else operand_tiles[~first_tile] or 0


@functools.lru_cache(maxsize=4096)
def begin_at_tile(layout: TensorLayout, tile: int) -> TensorLayout:
    """Returns the same layout, beginning at another tile or a stand-in for one."""
    return TensorLayout(layout.mapping.begin_at(tile), layout.view)


_ViewSteps: TypeAlias = tuple[tuple[Operation, int], ...]
"""The operations that lead from a tensor to a view of it, and which of their results it is."""


class Layouts:
    """The layouts of one kernel's values, as they are decided.

    Args:
      shapes: the shape of every value.
      operands: the kernel's operands.
      operand_layouts: their layouts; None for those that the kernel may lay out.
      tiles: how many tiles there are.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        operands: Sequence[int],
        operand_layouts: Sequence[TensorLayout | None],
        tiles: int,
    ) -> None:
        self._shapes, self._tiles = shapes, tiles
        self._next_tile = 0
        self._seen: dict[int, tuple[int, _ViewSteps]] = {i: (i, ()) for i in range(len(shapes))}
        self._laid: dict[int, TensorLayout] = {
            value: layout
            for value, layout in zip(operands, operand_layouts, strict=True)
            if layout is not None
        }
        self._known: dict[int, TensorLayout] = {}

    def memory_owner(self, value: int) -> int:
        """Returns the value whose memory a value uses: itself, unless it is a view."""
        return self._seen[value][0]

    def layout_of(self, value: int) -> TensorLayout:
        """Returns the layout of a value; one that has none yet is mapped linearly."""
        layout = self._known.get(value)
        if layout is None:
            owner = self.memory_owner(value)
            if owner not in self._laid:
                self._laid[owner] = self.lay_out_linearly(self._shapes[owner])
            layout = self._laid[owner]
            view = self._view_of_value(value, layout.view)
            if view != layout.view:
                layout = _view_layout(layout.mapping, view)
            self._known[value] = layout
        return layout

    def has_all_elements(self, value: int) -> bool:
        """Returns whether a value has memory for each of its elements."""
        owner = self.memory_owner(value)
        if self.has_no_layout(value):
            same = self._shapes[owner].elements == self._shapes[value].elements
            return same and invert_view(self._view_of_value(value, ())) is not None
        return self.layout_of(value).suits_shape(self._shapes[value])

    def is_reordered(self, value: int) -> bool:
        """Returns whether a value takes its owner's elements in another order, or only some."""
        return bool(self._view_of_value(value, ()))

    def has_no_layout(self, value: int) -> bool:
        """Returns whether a value's owner has no layout yet."""
        return self.memory_owner(value) not in self._laid

    def existing_layout(self, value: int | None) -> TensorLayout | None:
        """Returns the layout of a value, or None if it has none yet."""
        return None if value is None or self.has_no_layout(value) else self.layout_of(value)

    def set_layout_if_free(self, value: int, layout: TensorLayout) -> None:
        """Sets the layout of an owner that has none yet."""
        if self.memory_owner(value) == value:
            self._laid.setdefault(value, layout)

    def set_layout(self, value: int, layout: TensorLayout) -> None:
        """Sets the layout of a value that has memory of its own."""
        if value in self._laid:
            self._known.clear()  # of its views, too
        self._seen[value] = (value, ())
        self._laid[value] = self._known[value] = layout

    def add_view(self, value: int, source: int, operation: Operation, part: int = 0) -> None:
        """Records that a value is a view of another: one of the results of an operation."""
        owner, steps = self._seen[source]
        if operation.name in MOVES:
            steps = (*steps, (operation, part))
        self._seen[value] = owner, steps
        self._known.pop(value, None)

    def request_layout(self, value: int, wanted_layout: WantedLayout) -> None:
        """Gives a value's owner the layout that a plan wants for the value, if it has none yet.

        The original's allocation finder did so behind reshapes and transpositions.
        """
        owner = self.memory_owner(value)
        if not self.has_no_layout(value) or not self.has_all_elements(value):
            return
        layout = self.layout_for_plan(self._shapes[owner], wanted_layout)
        self._laid[owner] = TensorLayout(
            layout.mapping, invert_view(self._view_of_value(value, ())) or ()
        )

    def _view_of_value(self, value: int, view: View) -> View:
        """Returns the view of a value, if `view` is that of its owner."""
        for operation, part in self._seen[value][1]:
            view = apply_to_view(view, operation, part)
        return view

    def layout_for_plan(self, shape: Shape, wanted_layout: WantedLayout) -> TensorLayout:
        """Returns the layout that a plan asks for, or that the user has chosen."""
        return _lay_out_for_plan(shape.elements, shape.element_bytes, wanted_layout, self._tiles)

    def lay_out_linearly(self, shape: Shape) -> TensorLayout:
        """Returns a linear layout that begins on the tile after the last one's."""
        layout = _lay_out_linearly(shape.elements, shape.element_bytes, self._tiles)
        used, first_tile = layout.mapping.used, self._next_tile
        if used == self._tiles:
            return layout
        self._next_tile = (first_tile + used) % self._tiles
        return begin_at_tile(layout, first_tile)


@functools.lru_cache(maxsize=4096)
def _change_element_bytes(layout: TensorLayout, element_bytes: int) -> TensorLayout:
    return TensorLayout(dc.replace(layout.mapping, element_bytes=element_bytes), layout.view)


@functools.lru_cache(maxsize=4096)
def _view_layout(mapping: TileMapping, view: View) -> TensorLayout:
    return TensorLayout(mapping, view)


@functools.lru_cache(maxsize=4096)  # few layouts lay out all tensors: equal ones share their bytes
def _lay_out_linearly(elements: int, element_bytes: int, tiles: int) -> TensorLayout:
    return TensorLayout(map_linearly(elements, element_bytes, tiles))


@functools.lru_cache(maxsize=4096)
def _lay_out_for_plan(
    elements: int, element_bytes: int, wanted_layout: WantedLayout, tiles: int
) -> TensorLayout:
    if wanted_layout.by_hand is not None:
        return TensorLayout(map_by_hand(wanted_layout.by_hand, element_bytes, tiles))
    mapping = map_evenly(
        elements,
        element_bytes,
        wanted_layout.used,
        tiles,
        layout=wanted_layout.layout,
        block=wanted_layout.block,
    )
    return TensorLayout(mapping)
