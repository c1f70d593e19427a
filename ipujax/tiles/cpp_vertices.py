"""Maps of vertices in C++."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax import poplar
from ipujax.poplar import program
from ipujax.tiles.compute_sets import Connection, PlainValue, add_compute_set
from ipujax.tiles.function_vertices import run_function
from ipujax.tiles.map_operands import MapOperands
from ipujax.tiles.placed_calls import map_rows_to_tiles, run_step
from ipujax.tiles.tile_arrays import TileArray, check
from ipujax.tiles.vertex_derivatives import VertexDerivative
from ipujax.tiles.vertices import Vertex


def run_cpp_vertex(operands: MapOperands) -> dict[str, TileArray]:
    """Runs a vertex in C++ on each tile, and returns its output fields on tiles."""
    vertex, arrays = operands.vertex, operands.arrays
    rows = operands.rebuild(arrays.rows())
    results = vertex.function(*rows)
    if not isinstance(results, Mapping) or not results:
        raise check.wrong_type_error(
            "a dict of output fields", results, f"what '{vertex.name}' returns"
        )
    fields: dict[str, jax.ShapeDtypeStruct] = dict(results)
    _check_inouts(vertex.name, vertex.name_operands(rows), fields)
    cycles = vertex.count_cycles(rows)

    def build(
        graph: poplar.Graph, sequence: program.Sequence, *tensors: poplar.Tensor
    ) -> list[poplar.Tensor]:
        _add_codelet(graph, vertex, cycles)
        return _add_vertices(operands, fields, graph, sequence, tensors)

    rule = None
    if vertex.rule is not None:
        rule = operands.flatten_rule(vertex.rule, jax.tree.structure(fields))
    leaves = jax.tree.leaves(fields)
    derivative = VertexDerivative(vertex.name, arrays, None, leaves, rule, run_function)
    outputs = run_step(build, derivative, arrays.arrays)
    return {
        name: TileArray(array, arrays.tiles)
        for name, array in zip(sorted(fields), outputs, strict=True)
    }


def _add_codelet(graph: poplar.Graph, vertex: Vertex, cycles: Callable[[], float] | None) -> None:
    """Compiles the vertex's file for a graph, and lets it count the cycles that the user gives."""
    graph.addCodelets(str(vertex.source))
    codelet = graph.codelets.find(vertex.name)
    if vertex.threads > 1 and codelet.kind == "Vertex":
        raise check.value_error(
            f"'{vertex.name}' has {vertex.threads} threads, and its class is a Vertex",
            "leave threads out, or derive the class from MultiVertex",
        )
    if cycles is not None:
        graph.registerPerfEstimator(codelet.name, cycles)


def _check_inouts(
    vertex_name: str, inputs: Mapping[str, Any], outputs: Mapping[str, jax.ShapeDtypeStruct]
) -> None:
    """Raises an error for an InOut field whose shape or dtype changes."""
    for name, output in outputs.items():
        operand = inputs.get(name, output)
        if (operand.shape, operand.dtype) != (output.shape, np.dtype(output.dtype)):
            raise check.type_error(
                f"field '{name}' of '{vertex_name}' is {operand.dtype}{list(operand.shape)}, and "
                f"comes out as {output.dtype}{list(output.shape)}",
                "an InOut field has one shape and dtype",
            )


def _add_vertices(
    operands: MapOperands,
    outputs: Mapping[str, jax.ShapeDtypeStruct],
    graph: poplar.Graph,
    sequence: program.Sequence,
    tensors: Sequence[poplar.Tensor],
) -> list[poplar.Tensor]:
    """Adds a compute set with a vertex on each tile; returns the output fields' tensors, sorted."""
    vertex, tiles, row_tiles = operands.vertex, operands.arrays.tiles, operands.arrays.row_tiles
    for tensor, tiles_of_rows in zip(tensors, row_tiles, strict=True):
        if tiles_of_rows is not None:
            map_rows_to_tiles(graph, tensor, tiles_of_rows)
    inputs = vertex.name_operands(operands.rebuild(tensors))
    row_tiles_by_name = vertex.name_operands(operands.rebuild(row_tiles))
    ranks = {name: field.rank for name, field in graph.codelets.find(vertex.name).fields.items()}
    fields: dict[str, Connection] = {}
    plain: dict[str, PlainValue] = {}
    for name, value in inputs.items():
        if isinstance(value, poplar.Tensor):
            has_rows = row_tiles_by_name[name] is not None
            fields[name] = Connection(value, has_rows, ranks.get(name, 1))
        else:
            plain[name] = value
    outputs_on_tiles: list[poplar.Tensor] = []
    for name, leaf in sorted(outputs.items()):
        kind = poplar.type_of_dtype(np.dtype(leaf.dtype))
        output = graph.addVariable(kind, (len(tiles), *leaf.shape), f"{vertex.name}/{name}")
        map_rows_to_tiles(graph, output, tiles)
        if name in fields:
            source = fields[name].tensor
            if not fields[name].has_rows:
                source = source.expand([0]).broadcast(len(tiles), 0)
            sequence.add(program.Copy(source, output, debugContext=f"{vertex.name}/{name}"))
        fields[name] = Connection(output, rank=ranks.get(name, 1))
        outputs_on_tiles.append(output)
    add_compute_set(graph, sequence, vertex.name, vertex.name, tiles, fields, plain)
    return outputs_on_tiles
