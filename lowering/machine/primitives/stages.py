"""Operations that pass over a whole tensor again and again: sorting networks and transforms.

Each pass combines every element with one at some distance. Where that one lies on another tile, the
elements are exchanged before the pass.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.machine.cost import Cost, Phase, Shape
from lowering.machine.primitives.vertices import FREE, on_worker, spread, supervisor, vertex
from lowering.machine.target import Target


@dc.dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a tensor.

    Attributes:
      name: what happens.
      start: worker cycles beside the loop.
      cycles: worker cycles per element.
      share: the share of the elements that takes part.
      sent: the share of the elements that is exchanged, if the distance leaves the tile.
    """

    name: str
    start: float
    cycles: float
    share: float = 1.0
    sent: float = 1.0


def passes(
    shape: Shape, row: int, stride: int, steps: tuple[int, ...], each: Pass, target: Target
) -> Cost:
    """The passes over rows of a tensor.

    Args:
      shape: of the tensor; elements of its size are worked on and sent.
      row: extent of the axis along which elements are combined.
      stride: elements from one to the next along it.
      steps: the distance along the axis of each pass.
      each: what a pass costs.
      target: the chip.
    """
    lying = spread(shape, target)
    if not lying.elements or row <= 1 or not steps:
        return FREE
    share = on_worker(lying.most_elements, target)
    compute = supervisor(each.start + share * each.share * each.cycles, target)
    sent = lying.most_bytes * each.sent
    reach = lying.most_elements
    phases = tuple(
        Phase(each.name, compute, sent if lying.used > 1 and step * stride >= reach else 0.0)
        for step in steps
    )
    return Cost(
        phases=phases,
        temporary_bytes=float(lying.most_bytes),
        vertices=vertex(f"popops::{each.name}", shape.dtype, lying.used),
    )
