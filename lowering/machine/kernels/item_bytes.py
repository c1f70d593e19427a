"""The bytes that an item reads and writes on the tiles."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.machine.cost import Shape
from lowering.machine.kernels.items import Item, without_literals

_READ_SLICES = ("dynamic_slice", "gather")
_WRITE_SLICES = {"dynamic_update_slice": 1, "scatter": 2}
"""The operand that holds what is written; all kinds of scatter have it where scatter does."""


def count_item_bytes(item: Item, shapes: Sequence[Shape]) -> int:
    """Counts the bytes of operands and results; a value that is read twice counts once.

    Of a table, only the rows that are read or written count.
    """
    if len(item.operations) == 1:
        operation = item.operations[0]
        if operation.name in _READ_SLICES:
            indices = operation.operands[1:]
            return 2 * operation.first_result.bytes + sum(shape.bytes for shape in indices)
        position = _WRITE_SLICES.get(operation.name.partition("-")[0])
        if position is not None:
            reads_table = "-" in operation.name  # adds to it, or the like
            written_bytes = operation.operands[position].bytes
            indices = [s for i, s in enumerate(operation.operands) if i not in (0, position)]
            return (2 + reads_table) * written_bytes + sum(shape.bytes for shape in indices)
    return sum(shapes[value].bytes for value in {*without_literals(item.reads), *item.writes})
