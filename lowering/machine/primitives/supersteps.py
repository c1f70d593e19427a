"""The cost of supersteps that the user has laid out on tiles by hand: it was decided with them."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from lowering.ground import Placement, Superstep, TargetError
from lowering.machine.compute_sets import RESULTS
from lowering.machine.cost import Cost, Operation, Phase, Vertices, WantedLayout
from lowering.machine.primitives.rule_helpers import FREE, LAUNCH, Rule
from lowering.machine.target import Target


def superstep_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost that a superstep carries: its exchange, its vertices, its results' exchange.

    What carries none is free, and so is what neither computes nor moves anything.

    Raises:
      TargetError: (a `ValueError`) a superstep on tiles that the chip does not have.
    """
    step: Superstep | None = op.param("step")
    if step is None:
        return FREE
    _require_tiles(step, target)
    phases: list[Phase] = []
    if step.kind or step.operand_bytes:
        compute = step.tile_cycles.most + LAUNCH if step.kind else 0
        phases.append(Phase(step.name, float(compute), step.operand_bytes, is_by_hand=True))
    if step.result_bytes:
        name = f"{step.name}/{RESULTS}"
        phases.append(Phase(name, 0.0, step.result_bytes, is_by_hand=True))
    operands = tuple(_layout_on(place, target) for place in step.operand_places)
    results = tuple(_layout_on(place, target) for place in step.result_places)
    moves_outside = step.host_bytes or step.remote_bytes or step.between_ipus is not None
    if not phases and not moves_outside:
        return dc.replace(FREE, operands=operands, results=results)
    tiles = int((step.vertices.array > 0).sum())
    kinds = (Vertices(step.kind, step.vertices.most, tiles, where=step.vertices),)
    return Cost(
        phases=tuple(phases),
        vertices=kinds if step.kind else (),
        flops=float(step.flops),
        operands=operands,
        results=results,
        in_place=True,
        source="default" if step.is_estimated else "formula",
        host_bytes=step.host_bytes,
        remote_bytes=step.remote_bytes,
        step=step,
    )


def _require_tiles(step: Superstep, target: Target) -> None:
    """Raises an error for a superstep that was laid out for a chip of more tiles."""
    tiles = target.tiles_per_ipu
    is_for_several_ipus = step.between_ipus is not None or step.vertices.array.size % tiles == 0
    last = max((place.runs.tiles for place in step.result_places if place is not None), default=0)
    if not is_for_several_ipus:
        last = max(last, int(np.flatnonzero(step.vertices.array).max(initial=-1)) + 1)
    if last > tiles:
        raise TargetError(
            f"'{step.name}' is on tile {last - 1}, and programs have {tiles} tiles of each IPU",
            fix="put it on other tiles, or choose a chip, or fewer I/O tiles, so that it is there",
        )


def _layout_on(place: Placement | None, target: Target) -> WantedLayout | None:
    """Returns the layout of what the user has put on tiles; None if one IPU has no such tiles."""
    if place is None or place.runs.tiles > target.tiles_per_ipu:
        return None
    used = int(np.count_nonzero(place.runs.elements_on_tiles(target.tiles_per_ipu)))
    return WantedLayout(used, "linear", by_hand=place.runs)


RULES: dict[str, Rule] = {"ipu_superstep": superstep_cost}
