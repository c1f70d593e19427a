"""Maps of vertices in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax import poplar
from ipujax.poplar import program
from ipujax.tiles.compute_sets import Connection, add_compute_set
from ipujax.tiles.function_vertices import run_function
from ipujax.tiles.map_operands import MapOperands
from ipujax.tiles.placed_calls import Arrays, put_rows_on_tiles, run_with_gradient
from ipujax.tiles.tile_arrays import TileArray, check
from ipujax.tiles.vertex_gradients import run_gradient


def run_cpp_vertex(given: MapOperands) -> dict[str, TileArray]:
    """Runs a vertex in C++ on each tile, and returns its output fields on tiles."""
    vertex = given.vertex
    rows = given.rebuild(given.arrays.rows())
    results = vertex.function(*rows)
    if not isinstance(results, Mapping) or not results:
        raise check.wrong_type_error(
            "a dict of output fields", results, f"what '{vertex.name}' returns"
        )
    names, leaves = [*results], [*results.values()]
    inputs = vertex.name_operands(rows)
    _check_inouts(given, inputs, results)
    cycles = vertex.count_cycles(rows)

    def build(graph: Any, sequence: Any, *tensors: Any) -> Any:
        graph.addCodelets(str(vertex.source))
        codelet = graph.codelets.find(vertex.name)
        if vertex.threads > 1 and codelet.kind == "Vertex":
            raise check.value_error(
                f"'{vertex.name}' has {vertex.threads} threads, and its class is a Vertex",
                "leave threads out, or derive the class from MultiVertex",
            )
        if cycles is not None:
            graph.registerPerfEstimator(codelet.name, cycles)
        return _add_vertices(given, results, graph, sequence, tensors)

    def backward(operands: Arrays, cotangents: Arrays) -> list[jax.Array | None]:
        if vertex.rule is None:
            raise check.type_error(
                f"the gradient of vertex '{vertex.name}', which is in C++",
                f"give it a rule by {vertex.name}.defvjp",
            )
        rule = given.flatten_rule(vertex.rule, jax.tree.structure(dict(results)))
        at = type(given.arrays)(given.arrays.tiles, tuple(operands), given.arrays.homes)
        return run_gradient(
            vertex.name, at, vertex.function, leaves, cotangents, rule, run_function
        )

    arrays = run_with_gradient(build, backward, given.arrays.arrays)
    return {
        name: TileArray(array, given.arrays.tiles)
        for name, array in zip(names, arrays, strict=True)
    }


def _check_inouts(
    given: MapOperands, inputs: Mapping[str, Any], results: Mapping[str, Any]
) -> None:
    """Raises an error for an InOut field that comes out otherwise than it goes in."""
    for name, wanted in results.items():
        given_shape = inputs.get(name, wanted)
        if (given_shape.shape, given_shape.dtype) != (wanted.shape, np.dtype(wanted.dtype)):
            raise check.type_error(
                f"field '{name}' of '{given.vertex.name}' is {given_shape.dtype}"
                f"{list(given_shape.shape)}, and comes out as {wanted.dtype}{list(wanted.shape)}",
                "an InOut field has one shape and dtype",
            )


def _add_vertices(
    given: MapOperands,
    results: Mapping[str, Any],
    graph: Any,
    sequence: Any,
    tensors: Sequence[Any],
) -> list[Any]:
    """Adds a compute set with a vertex on each tile; returns the tensors of the output fields."""
    vertex, tiles, homes = given.vertex, given.arrays.tiles, given.arrays.homes
    for tensor, home in zip(tensors, homes, strict=True):
        if home is not None:
            put_rows_on_tiles(graph, tensor, home)
    inputs = vertex.name_operands(given.rebuild(tensors))
    homes_by_name = vertex.name_operands(given.rebuild(homes))
    ranks = {name: field.rank for name, field in graph.codelets.find(vertex.name).fields.items()}
    fields: dict[str, Connection] = {}
    plain: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, poplar.Tensor):
            has_rows = homes_by_name[name] is not None
            fields[name] = Connection(value, has_rows, ranks.get(name, 1))
        else:
            plain[name] = value
    outputs: list[Any] = []
    for name, leaf in results.items():
        kind = poplar.type_of_dtype(np.dtype(leaf.dtype))
        placed = graph.addVariable(kind, (len(tiles), *leaf.shape), f"{vertex.name}/{name}")
        put_rows_on_tiles(graph, placed, tiles)
        if name in fields:
            source = fields[name]
            whole = source.tensor if source.has_rows else _repeat(source.tensor, len(tiles))
            sequence.add(program.Copy(whole, placed, debugContext=f"{vertex.name}/{name}"))
        fields[name] = Connection(placed, rank=ranks.get(name, 1))
        outputs.append(placed)
    add_compute_set(graph, sequence, vertex.name, vertex.name, tiles, fields, plain)
    return outputs


def _repeat(tensor: Any, count: int) -> Any:
    return tensor.expand([0]).broadcast(count, 0)
