"""Graphs for tests: tensors with values, and programs that run once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipujax import poplar
from ipujax.poplar import poputil, program

TYPES = {
    each.dtype: each
    for each in (
        poplar.FLOAT,
        poplar.HALF,
        poplar.INT,
        poplar.UNSIGNED_INT,
        poplar.SHORT,
        poplar.UNSIGNED_SHORT,
        poplar.SIGNED_CHAR,
        poplar.UNSIGNED_CHAR,
        poplar.BOOL,
    )
}


def make_graph() -> poplar.Graph:
    return poplar.Graph(poplar.IPUModel().createDevice().getTarget())


def add_tensor(
    graph: poplar.Graph, values: Any, name: str, tile: int | None = None
) -> poplar.Tensor:
    """Adds a tensor with initial values, on one tile, or spread linearly."""
    values = np.asarray(values)
    tensor = graph.addVariable(TYPES[values.dtype], values.shape, name)
    if tile is None:
        poputil.mapTensorLinearly(graph, tensor)
    else:
        graph.setTileMapping(tensor, tile)
    graph.setInitialValue(tensor, values)
    return tensor


def make_engine(graph: poplar.Graph, what: Any) -> poplar.Engine:
    what = program.Execute(what) if isinstance(what, poplar.ComputeSet) else what
    engine = poplar.Engine(graph, what)
    engine.load(poplar.IPUModel().createDevice())
    return engine


def run(graph: poplar.Graph, prog: program.Sequence, *tensors: poplar.Tensor) -> list[np.ndarray]:
    """Runs a program once, and returns what tensors hold after it."""
    for number, tensor in enumerate(tensors):
        graph.createHostRead(f"read{number}", tensor)
    engine = make_engine(graph, prog)
    engine.run(0)
    return [engine.readTensor(f"read{number}") for number in range(len(tensors))]
