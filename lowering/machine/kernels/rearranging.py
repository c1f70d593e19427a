"""The exchange that brings the operands of an operation to where it needs them."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Sequence

from lowering.machine.cost import Cost, Phase, Shape, WantedLayout
from lowering.machine.kernels.items import Item
from lowering.machine.kernels.layouts import Layouts, TensorLayout
from lowering.machine.mapping import TileMapping
from lowering.machine.primitives import ELEMENTWISE
from lowering.machine.transfers.exchange_code import Pieces, scattered_pieces


@dc.dataclass(frozen=True, slots=True)
class Rearranging:
    """What brings the operands of an operation into place.

    Attributes:
      phase: the exchange; None if they are there.
      received_bytes: what the tile that receives most keeps while the operation runs.
      largest_layout: the layout of the largest operand, which results without a plan take; None if
        a plan or the user has chosen operands' layouts.
    """

    phase: Phase | None
    received_bytes: float = 0.0
    largest_layout: TensorLayout | None = None


class Rearranger:
    """Brings the operands of a kernel's operations into place.

    Args:
      layouts: the layouts of the kernel's values.
      shapes: the shape of every value.
    """

    def __init__(self, layouts: Layouts, shapes: Sequence[Shape]) -> None:
        self._layouts, self._shapes = layouts, shapes
        # What equal items find where their operands lie alike: the largest one's position.
        self._known: dict[object, tuple[Phase | None, float, int | None]] = {}

    def rearrange_operands(self, item: Item, costs: Cost) -> Rearranging:
        """Lays out operands that have no layout yet, and finds what brings the others into place.

        Args:
          item: the operations.
          costs: what they cost, with the layouts that they want.
        """
        has_results_by_hand = any(wanted and wanted.by_hand for wanted in costs.results)
        is_planned = any(costs.operands) or has_results_by_hand or not item.distinct_reads
        read = self._lay_out_wanted(item, costs) if is_planned else self._lay_out_all(item)
        given = tuple(None if value is None else self._layouts.layout_of(value) for value in read)
        key = (
            item.signature,
            item.read_pattern,
            tuple(laid and laid.at_first_tile for laid in given),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (
                self._move_to_wanted(read, given, costs)
                if is_planned
                else self._move_to_largest(item, given)
            )
        phase, received, largest = found
        return Rearranging(phase, received, None if largest is None else given[largest])

    def _lay_out_wanted(self, item: Item, costs: Cost) -> Sequence[int | None]:
        """Lays out operands as a plan wants them; returns those, and None for all others."""
        read: list[int | None] = []
        for value, wanted_layout in zip(item.reads, costs.operands, strict=False):
            read.append(None if wanted_layout is None else value)
            if value is not None and wanted_layout is not None:
                self._layouts.request_layout(value, wanted_layout)
                self._layouts.layout_of(value)
        return read

    def _lay_out_all(self, item: Item) -> Sequence[int]:
        if item.operations[-1].name in ELEMENTWISE:
            _lay_out_like_other_operands(item.distinct_reads, self._layouts, self._shapes)
        return item.distinct_reads

    def _move_to_wanted(
        self, read: Sequence[int | None], given: Sequence[TensorLayout | None], costs: Cost
    ) -> tuple[Phase | None, float, None]:
        """Returns the exchange to the layouts of a plan, and the bytes that a tile receives."""
        received, sent, pieces, receivers = 0.0, 0.0, Pieces(), 0
        for value, layout, wanted_layout in zip(read, given, costs.operands, strict=False):
            if value is None or layout is None or wanted_layout is None:
                continue
            if not _is_in_place(layout, wanted_layout):
                shape = self._shapes[value]
                wanted = self._layouts.layout_for_plan(shape, wanted_layout).mapping
                moved_bytes = math.ceil(shape.bytes / max(1, wanted_layout.used))
                received += moved_bytes
                receivers = max(receivers, wanted.used)
                sent += layout.mapping.most_bytes if layout.is_by_hand else 0
                together = layout.mapping.bytes_together_in(wanted)
                pieces += scattered_pieces(moved_bytes, together, layout.mapping.used)
        return _exchange_of(max(received, sent), pieces, receivers), received, None

    def _move_to_largest(
        self, item: Item, given: Sequence[TensorLayout | None]
    ) -> tuple[Phase | None, float, int | None]:
        """Returns the exchange to the largest operand's layout, its bytes, and which that is."""
        received, sent, pieces = 0.0, 0.0, Pieces()
        layouts = [layout for layout in given if layout is not None]
        if by_hand := [layout.mapping for layout in layouts if layout.is_by_hand]:
            for mapping in by_hand:  # what the planner computes, it spreads over all tiles
                received += math.ceil(mapping.total_bytes / mapping.tiles)
                sent += mapping.most_bytes
                pieces += scattered_pieces(mapping.most_bytes, mapping.most_bytes, mapping.used)
            return _exchange_of(max(received, sent), pieces), received, None
        elements = [self._shapes[value].elements for value in item.distinct_reads]
        sizes = [
            (size, laid.mapping.elements) for size, laid in zip(elements, layouts, strict=True)
        ]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        largest_layout = layouts[largest]
        for layout in layouts if item.operations[-1].name in ELEMENTWISE else ():
            if layout.order_key != largest_layout.order_key:
                moved_elements = min(layout.mapping.elements, largest_layout.mapping.most_elements)
                received += moved_elements * layout.mapping.element_bytes
                pieces += _pieces_of_operand(layout.mapping, largest_layout.mapping)
        return _exchange_of(received, pieces, largest_layout.mapping.used), received, largest


def _is_in_place(layout: TensorLayout, wanted_layout: WantedLayout) -> bool:
    """Returns whether an operand lies as it is wanted.

    Where users say by hand that it lies, it does, or has been brought by a step of theirs.
    """
    return wanted_layout.by_hand is not None or layout.order_key == (wanted_layout.layout, ())


def _exchange_of(received: float, pieces: Pieces, receivers: int | None = None) -> Phase | None:
    if not received:
        return None
    return Phase("rearrange", 0.0, received, receivers=receivers, pieces=pieces)


def _pieces_of_operand(operand: TileMapping, largest: TileMapping) -> Pieces:
    """Returns the pieces of an elementwise operand; of a repeated one each element comes once."""
    share = min(1.0, operand.elements / max(1, largest.elements))
    own_bytes = math.ceil(largest.most_elements * share) * operand.element_bytes
    return scattered_pieces(own_bytes, operand.bytes_together_in(largest), operand.used)


def _lay_out_like_other_operands(
    read: Sequence[int], layouts: Layouts, shapes: Sequence[Shape]
) -> None:
    """Lays out operands without a layout as the other operands of their operation lie.

    So an optimizer's state lies as the gradients do (docs/hardware.md, Passes: forward
    allocation).
    """
    free = list(filter(layouts.has_no_layout, read))
    if not free:
        return
    existing = [
        layout
        for layout in map(layouts.existing_layout, read)
        if layout is not None and not layout.is_by_hand
    ]
    for value in free:
        shape = shapes[value]
        matching_layout = next((laid for laid in existing if laid.suits_shape(shape)), None)
        if matching_layout is not None:
            layouts.set_layout_if_free(value, matching_layout.for_element_type(shape))
