"""Maps of functions in JAX."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import poplar
from ipujax.poplar import program
from ipujax.tiles.map_operands import ArrayPlace, MapOperands
from ipujax.tiles.placed_calls import Arrays, put_rows_on_tiles, run_with_gradient
from ipujax.tiles.tile_arrays import TileArray, check
from ipujax.tiles.vertices import Vertex


def run_function(given: MapOperands) -> Any:
    """Runs a function in JAX on each tile, and returns its results on tiles."""
    vertex, rows = given.vertex, given.rows()
    results = jax.eval_shape(lambda *arrays: vertex.function(*given.rebuild(arrays)), *rows)
    leaves, tree = jax.tree.flatten(results)
    if not leaves:
        raise check.value_error(f"'{vertex.name}' returns nothing", "return an array")

    def build(graph: Any, sequence: Any, *tensors: Any) -> Any:
        for tensor, home in zip(tensors, given.homes, strict=True):
            if home is not None:
                put_rows_on_tiles(graph, tensor, home)
        return _add_vertices(given, leaves, graph, sequence, tensors)

    def backward(operands: Arrays, cotangents: Arrays) -> list[jax.Array | None]:
        return _run_gradient(dc.replace(given, arrays=tuple(operands)), leaves, tree, cotangents)

    arrays = run_with_gradient(build, backward, given.arrays)
    return jax.tree.unflatten(tree, [TileArray(array, given.tiles) for array in arrays])


def _add_vertices(
    given: MapOperands, leaves: Sequence[Any], graph: Any, sequence: Any, tensors: Sequence[Any]
) -> list[Any]:
    """Adds a compute set with a vertex on each tile; returns the results' tensors."""
    name, count = given.vertex.name, len(given.tiles)
    results: list[Any] = []
    for number, leaf in enumerate(leaves):
        result_type = poplar.type_of_dtype(leaf.dtype)
        result = graph.addVariable(result_type, (count, *leaf.shape), f"{name}/result{number}")
        put_rows_on_tiles(graph, result, given.tiles)
        results.append(result)
    graph.addCodelets(_make_codelet(given, tensors, results))
    compute_set = graph.addComputeSet(name)
    for place, tile in enumerate(given.tiles):
        fields = {f"result{n}": result[place].flatten() for n, result in enumerate(results)}
        for n, (tensor, home) in enumerate(zip(tensors, given.homes, strict=True)):
            fields[f"operand{n}"] = (tensor if home is None else tensor[place]).flatten()
        graph.setTileMapping(graph.addVertex(compute_set, name, fields), tile)
    sequence.add(program.Execute(compute_set))
    return results


def _make_codelet(given: MapOperands, tensors: Sequence[Any], results: Sequence[Any]) -> Any:
    """Returns the codelet whose vectors are the operands and results of one tile."""
    rows, vertex = given.rows(), given.vertex

    def compute(**fields: Any) -> Mapping[str, Any]:
        arrays = [fields[f"operand{n}"].reshape(row.shape) for n, row in enumerate(rows)]
        returned = jax.tree.leaves(vertex.function(*given.rebuild(arrays)))
        return {f"result{n}": jnp.asarray(leaf).reshape(-1) for n, leaf in enumerate(returned)}

    fields = {f"operand{n}": _vector(poplar.Input, t) for n, t in enumerate(tensors)}
    fields |= {f"result{n}": _vector(poplar.Output, t) for n, t in enumerate(results)}
    return poplar.Codelet(
        vertex.name,
        compute,
        vertex.kind,
        MappingProxyType(fields),
        MappingProxyType({}),
        vertex.count_cycles(given.rebuild(rows)),
        MappingProxyType({field: field for field in fields}),
    )


def _vector(access: Any, tensor: Any) -> Any:
    return access[poplar.Vector[tensor.elementType()]]


def _run_gradient(
    given: MapOperands, results: Sequence[Any], tree: Any, cotangents: Arrays
) -> list[jax.Array | None]:
    """Returns the operands' cotangents, which vertices on the same tiles compute."""
    count = len(given.arrays)
    is_real = [jnp.issubdtype(each.dtype, jnp.floating) for each in given.arrays]
    places = [n for n, real in enumerate(is_real) if real]
    known = [n for n, each in enumerate(results) if jnp.issubdtype(each.dtype, jnp.floating)]

    def gradient(*arrays: Any) -> list[Any]:
        of_results = [np.zeros(each.shape, jax.dtypes.float0) for each in results]
        for n, array in zip(known, arrays[count:], strict=True):
            of_results[n] = array
        found = _differentiate(given, arrays[:count], jax.tree.unflatten(tree, of_results), places)
        return [
            jnp.zeros_like(arrays[n]) if f is None else f
            for n, f in zip(places, found, strict=True)
        ]

    arrays = (*given.arrays, *(cotangents[n] for n in known))
    mapped = MapOperands(
        Vertex(gradient, f"{given.vertex.name}_gradient"),
        given.tiles,
        arrays,
        (*given.homes, *[given.tiles] * len(known)),
        tuple(ArrayPlace(n) for n in range(len(arrays))),
        jax.tree.structure(arrays),
    )
    of_operands: list[jax.Array | None] = [None] * count
    for n, found in zip(places, run_function(mapped), strict=True):
        of_operands[n] = found.array if given.homes[n] is not None else found.array.sum(0)
    return of_operands


def _differentiate(
    given: MapOperands, arrays: Sequence[Any], cotangents: Any, places: Sequence[int]
) -> list[Any]:
    """Returns the cotangents of some of one tile's arrays, by the vertex's rule or by JAX."""
    vertex = given.vertex
    if vertex.rule is not None:
        found = vertex.rule(given.rebuild(arrays), cotangents)
        by_leaf = given.tree.flatten_up_to(tuple(found))
        of_array = [
            f for f, leaf in zip(by_leaf, given.leaves, strict=True) if isinstance(leaf, ArrayPlace)
        ]
        return [of_array[n] for n in places]

    def run(*chosen: Any) -> Any:
        now = list(arrays)
        for n, array in zip(places, chosen, strict=True):
            now[n] = array
        return vertex.function(*given.rebuild(now))

    _, pull = jax.vjp(run, *(arrays[n] for n in places))
    return list(pull(cotangents))
