"""The cost of supersteps that the user has laid out on tiles by hand: it was decided with them."""

from __future__ import annotations

from lowering.ground import Superstep
from lowering.machine.compute_sets import RESULTS
from lowering.machine.cost import Cost, Operation, Phase, Vertices
from lowering.machine.primitives.rule_helpers import FREE, LAUNCH, Rule
from lowering.machine.target import Target


def superstep_cost(op: Operation, _: Target) -> Cost:
    """Returns the cost that a superstep carries: its exchange, its vertices, its results' exchange.

    What carries none is free, and so is what neither computes nor moves anything.
    """
    step: Superstep | None = op.param("step")
    if step is None:
        return FREE
    phases: list[Phase] = []
    if step.kind or step.operand_bytes:
        compute = step.tile_cycles.most + LAUNCH if step.kind else 0
        phases.append(Phase(step.name, float(compute), step.operand_bytes))
    if step.result_bytes:
        phases.append(Phase(f"{step.name}/{RESULTS}", 0.0, step.result_bytes))
    moves_outside = step.host_bytes or step.remote_bytes or step.between_ipus is not None
    if not phases and not moves_outside:
        return FREE
    tiles = int((step.vertices.array > 0).sum())
    kinds = (Vertices(step.kind, step.vertices.most, tiles, where=step.vertices),)
    return Cost(
        phases=tuple(phases),
        temporary_bytes=int(step.temporaries(step.vertices.array.size).max(initial=0)),
        vertices=kinds if step.kind else (),
        flops=float(step.flops),
        in_place=True,
        source="default" if step.is_estimated else "formula",
        host_bytes=step.host_bytes,
        remote_bytes=step.remote_bytes,
        step=step,
    )


RULES: dict[str, Rule] = {"ipu_superstep": superstep_cost}
