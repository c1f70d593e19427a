"""The modelled cost of steps on each tile: cycles of vertices, and bytes of exchanges."""

from __future__ import annotations

import dataclasses as dc
import heapq
import inspect
import math
from collections.abc import Sequence

import jax
import numpy as np

from ipujax.operators import (
    LAUNCH_CYCLES,
    Superstep,
    TileNumbers,
    cycles_of_function,
    tile_cycles_of,
)
from ipujax.poplar.cpp_codelets import estimate_cycles
from ipujax.poplar.exchanges import Edges, find_exchange, join_between_ipus
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import Vertex
from ipujax.poplar.program import Operation
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.vertex_groups import VertexGroup, run_vertex, split_by_plain_fields


def compute_set_cost(graph: Graph, name: str, groups: Sequence[VertexGroup]) -> Superstep:
    """Returns the modelled cost of one run of a compute set, tile by tile."""
    tiles = graph.getTarget().getNumTiles()
    counts = np.zeros(tiles, np.int64)
    reads: list[Edges] = []
    writes: list[Edges] = []
    cycles: dict[Vertex, float] = {}
    is_estimated = False
    for group in groups:
        vertex_tiles = np.array([vertex.tile for vertex in group.vertices])
        np.add.at(counts, vertex_tiles, 1)
        for part in split_by_plain_fields(group):
            estimate, is_default = _cycles_of_group(graph, part)
            for vertex in part.vertices:
                is_estimated |= is_default and vertex.cycles is None
                cycles[vertex] = estimate if vertex.cycles is None else vertex.cycles
        for field, elements in group.elements.items():
            declared = group.codelet.fields[field]
            edges = Edges(elements.reshape(len(vertex_tiles), -1), vertex_tiles, declared.type.size)
            if declared.is_read:
                reads.append(edges)
            if declared.is_written:
                writes.append(edges)
    operand_exchange = find_exchange(graph, reads, inwards=True)
    result_exchange = find_exchange(graph, writes, inwards=False)
    return Superstep(
        name=name,
        kind="+".join(dict.fromkeys(group.codelet.name for group in groups)),
        vertices=TileNumbers.from_array(counts),
        tile_cycles=TileNumbers.from_array(_cycles_of_tiles(graph, cycles)),
        received=TileNumbers.from_array(operand_exchange.received),
        sent=TileNumbers.from_array(operand_exchange.sent),
        results_received=TileNumbers.from_array(result_exchange.received),
        results_sent=TileNumbers.from_array(result_exchange.sent),
        between_ipus=join_between_ipus(operand_exchange, result_exchange),
        flops=sum(vertex.flops for vertex in cycles),
        is_estimated=is_estimated,
    )


def copy_cost(graph: Graph, name: str, src: np.ndarray, dst: np.ndarray, size: int) -> Superstep:
    """Returns the modelled cost of a copy; elements that stay on their tile are free.

    Args:
      graph: the graph.
      name: the name of the copy.
      src: the numbers of the source's elements.
      dst: the numbers of the destination's elements, as many.
      size: the bytes of an element.
    """
    edges = Edges(src.reshape(-1, 1), graph.tile_of[dst.reshape(-1)], size)
    moved = find_exchange(graph, [edges], inwards=True)
    received, sent = map(TileNumbers.from_array, (moved.received, moved.sent))
    between = join_between_ipus(moved)
    return Superstep(name=name, received=received, sent=sent, between_ipus=between)


def elementwise_cost(graph: Graph, operation: Operation) -> Superstep:
    """Returns the modelled cost of an elementwise operation, which runs where its output lies."""
    tiles, (output, *_) = graph.getTarget().getNumTiles(), operation.outputs
    shape, output_tiles = output.elements.shape, graph.tile_of[output.elements.reshape(-1)]
    counts = np.bincount(output_tiles, minlength=tiles)
    of_tile = operation.cycles or (lambda count: 0.0)
    cycles = {int(count): of_tile(int(count)) for count in np.unique(counts) if count}
    operands = [
        Edges(np.broadcast_to(t.elements, shape).reshape(-1, 1), output_tiles, t.type.size)
        for t in operation.inputs
    ]
    moved = find_exchange(graph, operands, inwards=True)
    tile_cycles = np.array([math.ceil(cycles.get(int(count), 0.0)) for count in counts])
    return Superstep(
        name=operation.name,
        kind=operation.name,
        vertices=TileNumbers.from_array((counts > 0).astype(np.int64)),
        tile_cycles=TileNumbers.from_array(tile_cycles),
        received=TileNumbers.from_array(moved.received),
        sent=TileNumbers.from_array(moved.sent),
        between_ipus=join_between_ipus(moved),
    )


def planned_cost(graph: Graph, operation: Operation) -> Superstep:
    """Returns the modelled cost of a planned operation in a graph of several IPUs.

    It runs on the IPUs of its largest operand, on all of their tiles: the planner says how long on
    a chip of so many. Each of these IPUs gets all of the other operands, and sends what it has of
    the results to the IPUs where these lie.
    """
    target = graph.getTarget()
    largest = max(operation.inputs or operation.outputs, key=lambda tensor: tensor.numElements())
    ipus = np.unique(graph.tile_of[largest.elements] // target.tiles)
    other_inputs = [tensor for tensor in operation.inputs if tensor is not largest]
    operand_exchange = find_exchange(graph, _edges_to_ipus(graph, other_inputs, ipus), inwards=True)
    result_exchange = find_exchange(
        graph, _edges_to_ipus(graph, operation.outputs, ipus), inwards=False
    )
    chip = dc.replace(target.chip, tiles_per_ipu=len(ipus) * target.tiles)
    operands = [
        jax.ShapeDtypeStruct(tensor.elements.shape, tensor.type.dtype)
        for tensor in operation.inputs
    ]
    # The superstep itself counts the first launch and sync, so that they are taken off here.
    launch_and_sync = LAUNCH_CYCLES + chip.sync_cycles
    cycles = cycles_of_function(lambda arrays: operation.function(*arrays), operands, chip)
    takes_part = np.repeat(np.isin(np.arange(target.ipus), ipus), target.tiles).astype(np.int64)
    return Superstep(
        name=operation.name,
        kind=operation.name,
        vertices=TileNumbers.from_array(takes_part),
        tile_cycles=TileNumbers.from_array(max(0, cycles - launch_and_sync) * takes_part),
        between_ipus=join_between_ipus(operand_exchange, result_exchange),
    )


def _edges_to_ipus(graph: Graph, tensors: Sequence[Tensor], ipus: np.ndarray) -> list[Edges]:
    """Returns the edges by which each of some IPUs gets all elements, on tiles like their own."""
    edges: list[Edges] = []
    tiles = graph.getTarget().tiles
    for tensor in tensors:
        elements = tensor.elements.reshape(-1)
        for ipu in ipus:
            destination_tiles = ipu * tiles + graph.tile_of[elements] % tiles
            edges.append(Edges(elements[:, None], destination_tiles, tensor.type.size))
    return edges


def _cycles_of_tiles(graph: Graph, cycles: dict[Vertex, float]) -> np.ndarray:
    """Returns int64 [tiles]: the cycles of the vertices on each tile.

    A tile's workers, which have every sixth cycle each, take `Vertex`es in the order of
    `addVertex`, a free worker the next one; those of other kinds have the tile alone.
    """
    target = graph.getTarget()
    num_workers = target.getNumWorkerContexts()
    workers: dict[int, list[float]] = {}
    alone = np.zeros(target.getNumTiles())
    for vertex in sorted(cycles, key=lambda vertex: vertex.number):
        if vertex.codelet.kind != "Vertex":
            alone[vertex.tile] += cycles[vertex]
            continue
        queue = workers.setdefault(vertex.tile, [0.0] * num_workers)
        heapq.heapreplace(queue, queue[0] + cycles[vertex])
    for tile, queue in workers.items():
        alone[tile] += num_workers * max(queue)
    return np.ceil(alone).astype(np.int64)


def _cycles_of_group(graph: Graph, group: VertexGroup) -> tuple[float, bool]:
    """Returns the cycles of each vertex of a group, and whether they are the default estimate."""
    if all(vertex.cycles is not None for vertex in group.vertices):
        return 0.0, False
    estimator = graph.estimators.get(group.codelet.name) or group.codelet.cycles
    if estimator is None:
        estimate = estimate_cycles(group, group.plain)
        return (_default_cycles(graph, group), True) if estimate is None else (estimate, False)
    arguments = group.parameters({field: group.parameter_shape(field) for field in group.elements})
    arguments |= group.parameters(group.plain)
    parameters = inspect.signature(estimator).parameters
    return float(estimator(**{name: arguments[name] for name in parameters})), False


def _default_cycles(graph: Graph, group: VertexGroup) -> float:
    """Returns the planner's cycles of the function on one tile, by itself.

    There six workers share the work, so that a tile's cycles are the instructions of all of them:
    a worker that does all of it needs as many cycles of its own. In C++ it is an instruction for
    each vector of eight bytes of the fields.
    """
    if group.codelet.native is not None:
        shapes = [group.shape_of(name) for name in group.elements]
        return float(sum(-(-shape.size * shape.dtype.itemsize // 8) for shape in shapes))
    fields = {name: f for name, f in group.codelet.fields.items() if f.is_read}
    shapes = {name: group.shape_of(name) for name in fields}
    chip = graph.getTarget().chip
    return tile_cycles_of(lambda read: run_vertex(group, read), shapes, chip)
