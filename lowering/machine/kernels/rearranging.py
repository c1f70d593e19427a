"""The exchange that brings the operands of an operation to where it needs them."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Sequence

from lowering.machine.cost import Cost, Phase, Shape, WantedLayout
from lowering.machine.kernels.items import Item, without_literals
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


def rearrange_operands(
    item: Item, costs: Cost, layouts: Layouts, shapes: Sequence[Shape]
) -> Rearranging:
    """Lays out operands that have no layout yet, and finds what brings the others into place.

    Args:
      item: the operations.
      costs: what they cost, with the layouts that they want.
      layouts: the layouts of the kernel's values.
      shapes: the shape of every value.
    """
    received, sent, pieces, receivers = 0.0, 0.0, Pieces(), 0
    for value, wanted_layout in zip(item.reads, costs.operands, strict=False):
        if value is None or wanted_layout is None:
            continue
        layouts.request_layout(value, wanted_layout)
        layout = layouts.layout_of(value)
        if not _is_in_place(layout, wanted_layout):
            wanted = layouts.layout_for_plan(shapes[value], wanted_layout).mapping
            moved_bytes = math.ceil(shapes[value].bytes / max(1, wanted_layout.used))
            received += moved_bytes
            receivers = max(receivers, wanted.used)
            sent += layout.mapping.most_bytes if layout.is_by_hand else 0
            together = layout.mapping.bytes_together_in(wanted)
            pieces += scattered_pieces(moved_bytes, together, layout.mapping.used)
    read = list(dict.fromkeys(without_literals(item.reads)))
    has_results_by_hand = any(wanted and wanted.by_hand for wanted in costs.results)
    if any(costs.operands) or has_results_by_hand or not read:
        return Rearranging(_exchange_of(max(received, sent), pieces, receivers), received)
    is_elementwise = item.operations[-1].name in ELEMENTWISE
    if is_elementwise:
        _lay_out_like_other_operands(read, layouts, shapes)
    layouts_read = {value: layouts.layout_of(value) for value in read}
    if by_hand := [layout.mapping for layout in layouts_read.values() if layout.is_by_hand]:
        for mapping in by_hand:  # what the planner computes, it spreads over all tiles
            received += math.ceil(mapping.total_bytes / mapping.tiles)
            sent += mapping.most_bytes
            pieces += scattered_pieces(mapping.most_bytes, mapping.most_bytes, mapping.used)
        return Rearranging(_exchange_of(max(received, sent), pieces), received)
    largest = max(read, key=lambda v: (shapes[v].elements, layouts_read[v].mapping.elements))
    largest_layout = layouts_read[largest]
    for layout in layouts_read.values() if is_elementwise else ():
        if layout.order_key != largest_layout.order_key:
            moved_elements = min(layout.mapping.elements, largest_layout.mapping.most_elements)
            received += moved_elements * layout.mapping.element_bytes
            pieces += _pieces_of_operand(layout.mapping, largest_layout.mapping)
    phase = _exchange_of(received, pieces, largest_layout.mapping.used)
    return Rearranging(phase, received, largest_layout)


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
    existing = [
        layout
        for layout in map(layouts.existing_layout, read)
        if layout is not None and not layout.is_by_hand
    ]
    for value in filter(layouts.has_no_layout, read):
        shape = shapes[value]
        matching_layout = next((laid for laid in existing if laid.suits_shape(shape)), None)
        if matching_layout is not None:
            layouts.set_layout_if_free(value, matching_layout.for_element_type(shape))
