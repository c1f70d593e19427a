"""The cost of passes over a whole tensor: sorting networks and transforms.

Each pass combines every element with one at some distance. Where that one lies on another tile, the
elements are exchanged before the pass.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.machine.cost import Cost, Phase, Shape
from lowering.machine.primitives.rule_helpers import (
    FREE,
    default_mapping,
    elements_per_worker,
    one_vertex_per_tile,
    supervisor_cycles,
)
from lowering.machine.target import Target


@dc.dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a tensor.

    Attributes:
      name: the kind of work.
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


def cost_of_passes(
    shape: Shape, row: int, stride: int, steps: tuple[int, ...], one_pass: Pass, target: Target
) -> Cost:
    """Returns the cost of the passes over rows of a tensor.

    Args:
      shape: the shape of the tensor; elements of its size are worked on and sent.
      row: extent of the axis along which elements are combined.
      stride: elements from one to the next along it.
      steps: the distance along the axis of each pass.
      one_pass: the cost of a pass.
      target: the chip.
    """
    mapping = default_mapping(shape, target)
    if not mapping.elements or row <= 1 or not steps:
        return FREE
    worker_elements = elements_per_worker(mapping.most_elements, target)
    compute = supervisor_cycles(
        one_pass.start + worker_elements * one_pass.share * one_pass.cycles, target
    )
    sent = mapping.most_bytes * one_pass.sent
    reach = mapping.most_elements
    phases = tuple(
        Phase(one_pass.name, compute, sent if mapping.used > 1 and step * stride >= reach else 0.0)
        for step in steps
    )
    return Cost(
        phases=phases,
        temporary_bytes=float(mapping.most_bytes),
        vertices=one_vertex_per_tile(f"popops::{one_pass.name}", shape.dtype, mapping.used),
    )
