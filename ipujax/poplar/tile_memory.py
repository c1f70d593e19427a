"""The bytes on each tile: mapped variables and constants, and copies of remote operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ipujax.poplar import program as programs
from ipujax.poplar.exceptions import graph_memory_allocation_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE
from ipujax.poplar.lower_steps import StepLowering, is_planned
from ipujax.report import PlacedStep, PlacedTensor

_MAX_NAMED_TENSORS = 5  # in an error message


def list_tensors(graph: Graph) -> list[PlacedTensor]:
    """Returns the variables and constants of a graph with their bytes on tiles."""
    target = graph.getTarget()
    shape = (target.getNumIPUs(), target.getTilesPerIPU())
    tensors: list[PlacedTensor] = []
    for variable in graph.variables:
        tiles = graph.tile_of[variable.start : variable.start + variable.size]
        counts = np.bincount(tiles[tiles != NO_TILE], minlength=target.getNumTiles())
        tensors.append(
            PlacedTensor(
                name=f"{variable.type.dtype}[{variable.size}]",
                path=variable.name,
                category=variable.category,
                bytes=(counts * variable.type.size).reshape(shape),
            )
        )
    return tensors


def list_steps(
    graph: Graph, lowering: StepLowering, all_programs: Iterable[programs.Program]
) -> list[PlacedStep]:
    """Returns each compute set and elementwise operation, with its copies of remote data."""
    target = graph.getTarget()
    shape = (target.getNumIPUs(), target.getTilesPerIPU())
    steps: dict[object, PlacedStep] = {}
    for program in all_programs:
        for part in program.walk():
            if not isinstance(part, (programs.Execute, programs.Operation)):
                continue
            if is_planned(graph, part):
                continue
            key = part.compute_set if isinstance(part, programs.Execute) else part
            if key not in steps:
                copies = lowering.cost_of(part).temporaries(target.getNumTiles())
                steps[key] = PlacedStep(part.name, copies.reshape(shape))
    return [*steps.values()]


def check_memory(
    graph: Graph, tensors: Sequence[PlacedTensor], steps: Sequence[PlacedStep]
) -> None:
    """Checks that tensors and copies fit onto their tiles.

    Neither code nor the work space of operations that the planner lays out is counted here.

    Raises:
      graph_memory_allocation_error: a tile holds more than it has.
    """
    target = graph.getTarget()
    shape = (target.getNumIPUs(), target.getTilesPerIPU())
    limit = target.chip.usable_bytes_per_tile
    tensor_bytes = sum((tensor.bytes for tensor in tensors), np.zeros(shape, np.int64))
    copy_bytes = np.zeros(shape, np.int64)
    for step in steps:
        copy_bytes = np.maximum(copy_bytes, step.bytes)
    needed = (tensor_bytes + copy_bytes).reshape(-1)
    tile = int(needed.argmax())
    if needed[tile] <= limit:
        return
    on_tile = sorted(((int(t.bytes.flat[tile]), t.path) for t in tensors), reverse=True)
    parts = [f"'{name}' {bytes_:,}" for bytes_, name in on_tile[:_MAX_NAMED_TENSORS] if bytes_]
    if copy_bytes.flat[tile]:
        fullest = max(steps, key=lambda step: step.bytes.flat[tile])
        parts.append(f"copies of remote data for '{fullest.name}' {int(copy_bytes.flat[tile]):,}")
    raise graph_memory_allocation_error(
        f"out of memory: tile {tile} needs {int(needed[tile]):,} bytes and has {limit:,}, "
        f"{int((needed > limit).sum())} tiles lack memory; in bytes: {', '.join(parts)}",
        fix='map them to more tiles, or give the engine {"debug.allowOutOfMemory": "true"} for a '
        "report",
    )
