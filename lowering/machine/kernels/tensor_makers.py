"""The tensors that the entries of a kernel make, each with what makes it, in words."""

from __future__ import annotations

from collections.abc import Mapping

from lowering import marks
from lowering.ground import Superstep, TileRuns
from lowering.jaxprs import name_stack
from lowering.machine.cost import Shape
from lowering.machine.kernels.alive import LiveTensor
from lowering.machine.kernels.items import (
    Entry,
    Item,
    user_line_of_entry,
)
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import CONSTANT
from lowering.machine.labels import label_of_moved
from lowering.machine.mapping import map_by_hand
from lowering.ops import superstep_p, word_of_equation

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
        name=shape.text,
        operation=move or primitive,
        origin="" if entry is None else user_line_of_entry(entry),
        laid=layout,
        category=_CATEGORIES.get(primitive, "activations"),
        label=label_of_moved(label, move),
        scope=scope,
    )


def step_of_item(item: Item) -> Superstep | None:
    """Returns what the user has laid out on tiles by hand; None for all other items."""
    operation = item.operations[-1]
    return operation.param("step") if operation.name == superstep_p.name else None


def name_results(births: Mapping[int, LiveTensor], step: Superstep) -> dict[int, LiveTensor]:
    """Returns the results of a superstep with the user's names and line."""
    if not step.result_places:
        return dict(births)
    return {
        value: live
        if place is None
        else live._replace(path=place.name, origin=step.where or live.origin)
        for (value, live), place in zip(births.items(), step.result_places, strict=True)
    }


def copies_of_remote_data(item: Item, step: Superstep, tiles: int) -> LiveTensor | None:
    """Returns the copies that the tiles of vertices hold while these run.

    Args:
      item: the operations.
      step: what the user has laid out by hand.
      tiles: how many tiles an IPU has.

    Returns:
      The copies; None if there are none, or if one IPU has no such tiles.
    """
    counts = step.temporaries(max(tiles, step.vertices.array.size))
    runs = TileRuns.from_counts(counts)
    if not counts.any() or runs.tiles > tiles:
        return None
    shape = Shape((int(counts.sum()),), "uint8")
    layout = TensorLayout(map_by_hand(runs, shape.element_bytes, tiles))
    live = tensor_made_by(item, shape, layout)
    return live._replace(category="temporaries", path=f"copies of remote data for {step.name}")


def _name_entry(entry: Entry | None) -> tuple[str, str, str]:
    """Returns the primitive of an entry, its label and its scopes."""
    if entry is None:
        return "", "", ""
    if isinstance(entry, Item):
        return entry.operations[-1].name, entry.label, entry.scope
    eqn = entry.eqn
    return eqn.primitive.name, word_of_equation(eqn), marks.user_scopes(name_stack(eqn))
