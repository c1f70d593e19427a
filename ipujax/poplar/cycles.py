"""Cycle counts: tensors that hold how many modelled cycles a program takes."""

from __future__ import annotations

from ipujax.poplar import program as programs
from ipujax.poplar.element_types import UNSIGNED_INT
from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.program import SyncType
from ipujax.poplar.tensors import Tensor


@check.guard
def cycleCount(
    graph: Graph,
    prog: programs.Sequence,
    tile: int,
    syncType: SyncType = SyncType.INTERNAL,
    debugContext: str = "",
) -> Tensor:
    """Makes a sequence count the modelled cycles of its present programs.

    Loops and branches count what runs. The counting itself takes no cycles.

    Args:
      graph: the graph.
      prog: the sequence; it runs as before, and writes the tensor.
      tile: the tile of the tensor.
      syncType: which tiles wait for each other around it; the model's clock is one for all.
      debugContext: the tensor's name.

    Returns:
      UNSIGNED_INT [2]: the low and the high 32 bits.
    """
    tensor = _add_tensor(graph, prog, tile, syncType, debugContext, "cycleCount")
    prog.programs = [programs.CycleCount(programs.Sequence(list(prog.programs)), tensor)]
    return tensor


@check.guard
def cycleStamp(
    graph: Graph,
    prog: programs.Sequence,
    tile: int,
    syncType: SyncType = SyncType.INTERNAL,
    debugContext: str = "",
) -> Tensor:
    """Appends a reading of the clock to a sequence: modelled cycles since the engine was made.

    Args:
      graph: the graph.
      prog: the sequence.
      tile: the tile of the tensor.
      syncType: which tiles wait for each other before it; the model's clock is one for all.
      debugContext: the tensor's name.

    Returns:
      UNSIGNED_INT [2]: the low and the high 32 bits.
    """
    tensor = _add_tensor(graph, prog, tile, syncType, debugContext, "cycleStamp")
    prog.add(programs.CycleStamp(tensor))
    return tensor


def _add_tensor(
    graph: Graph, prog: object, tile: int, sync: object, name: str, default: str
) -> Tensor:
    check.require_instance(graph, Graph, "graph")
    check.require_instance(prog, programs.Sequence, "prog")
    check.require_instance(sync, SyncType, "syncType")
    check.require_instance(name, str, "debugContext")
    tensor = graph.addVariable(UNSIGNED_INT, [2], name or default)
    graph.setTileMapping(tensor, tile)
    return tensor
