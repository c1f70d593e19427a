"""The tensors that the entries of a kernel make, each with what makes it, in words."""

from __future__ import annotations

from lowering import marks
from lowering.jaxprs import name_stack
from lowering.machine.cost import Shape
from lowering.machine.kernels.alive import LiveTensor
from lowering.machine.kernels.items import (
    Entry,
    Item,
    describe_shape,
    user_line_of_entry,
)
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import CONSTANT
from lowering.machine.labels import label_of_moved
from lowering.ops import word_of_equation

_CATEGORIES = {CONSTANT: "constants"}  # the others: "activations"


def tensor_made_by(
    entry: Entry | None, shape: Shape, layout: TensorLayout, move: str = ""
) -> LiveTensor:
    """Returns a tensor that an entry makes.

    Args:
      entry: the entry; None if nothing in the kernel makes what is moved.
      shape: the tensor's shape.
      layout: its layout on the tiles.
      move: the word for what makes it of a result of the entry, as "copy"; "" for a result.
    """
    primitive, label, scope = _name_entry(entry)
    return LiveTensor(
        name=describe_shape(shape),
        operation=move or primitive,
        origin="" if entry is None else user_line_of_entry(entry),
        laid=layout,
        category=_CATEGORIES.get(primitive, "activations"),
        label=label_of_moved(label, move),
        scope=scope,
    )


def _name_entry(entry: Entry | None) -> tuple[str, str, str]:
    """Returns the primitive of an entry, its label and its scopes."""
    if entry is None:
        return "", "", ""
    if isinstance(entry, Item):
        return entry.operations[-1].name, entry.label, entry.scope
    eqn = entry.eqn
    return eqn.primitive.name, word_of_equation(eqn), marks.user_scopes(name_stack(eqn))
