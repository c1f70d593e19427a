"""The cost of supersteps that the user has laid out on tiles by hand: it was decided with them."""

from __future__ import annotations

from lowering.machine.cost import Cost, Operation, Phase, Vertices
from lowering.machine.primitives.rule_helpers import FREE, Rule
from lowering.machine.target import Target


def superstep_cost(op: Operation, _: Target) -> Cost:
    """Returns the cost that a superstep carries: one phase, with its exchange before it.

    What carries none, or neither computes nor moves anything, is free.
    """
    step = op.param("step")
    if step is None or (not step.tile_cycles and not step.exchange_bytes):
        return FREE
    kinds = (Vertices(step.kind, step.vertices_per_tile, step.tiles),) if step.kind else ()
    return Cost(
        phases=(Phase(step.name, float(step.tile_cycles), step.exchange_bytes),),
        temporary_bytes=step.temporary_bytes,
        vertices=kinds,
        in_place=True,
        source="default" if step.is_estimated else "formula",
    )


RULES: dict[str, Rule] = {"ipu_superstep": superstep_cost}
