"""Maps of functions in JAX."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from ipujax import poplar
from ipujax.operators import lift_closed_over
from ipujax.tiles.compute_sets import Connection, add_compute_set
from ipujax.tiles.map_operands import MapOperands, OnTiles
from ipujax.tiles.placed_calls import Arrays, put_rows_on_tiles, run_with_gradient
from ipujax.tiles.tile_arrays import TileArray, check
from ipujax.tiles.vertex_gradients import run_gradient
from ipujax.tiles.vertices import Vertex


@dc.dataclass(frozen=True)
class _FlatFunction:
    """A function of one tile's arrays, all of them vectors of its codelet.

    Attributes:
      vertex: the vertex.
      arrays: what it is mapped over, with the values that it closes over.
      run: the arrays of one tile -> the leaves of the result.
      results: the shapes and dtypes of the leaves; states come last.
      num_states: how many of the first arrays, and of the last results, are states.
    """

    vertex: Vertex
    arrays: OnTiles
    run: Callable[..., list[jax.Array]]
    results: Sequence[jax.ShapeDtypeStruct]
    num_states: int

    def codelet(self, cycles: Callable[[], float] | None) -> poplar.Codelet:
        """Returns the codelet, whose states are one field each."""
        first = len(self.results) - self.num_states
        rows = self.arrays.rows()

        def compute(**fields: Any) -> Mapping[str, Any]:
            arrays = [fields[f"operand{n}"].reshape(row.shape) for n, row in enumerate(rows)]
            leaves = [jnp.asarray(leaf).reshape(-1) for leaf in self.run(*arrays)]
            results = {f"result{n}": leaf for n, leaf in enumerate(leaves[:first])}
            return results | {f"operand{n}": leaf for n, leaf in enumerate(leaves[first:])}

        accesses = [poplar.InOut if n < self.num_states else poplar.Input for n in range(len(rows))]
        fields = {
            f"operand{n}": _vector(access, row.dtype)
            for n, (access, row) in enumerate(zip(accesses, rows, strict=True))
        }
        fields |= {
            f"result{n}": _vector(poplar.Output, leaf.dtype)
            for n, leaf in enumerate(self.results[:first])
        }
        return poplar.Codelet(
            self.vertex.name,
            compute,
            self.vertex.kind,
            MappingProxyType(fields),
            MappingProxyType({}),
            cycles,
            MappingProxyType({field: field for field in fields}),
        )


def run_function(given: MapOperands) -> Any:
    """Runs a function in JAX on each tile, and returns its results on tiles."""
    vertex, rows = given.vertex, given.arrays.rows()
    run, lifted, results = lift_closed_over(
        lambda *arrays: vertex.function(*given.rebuild(arrays)), rows
    )
    leaves, tree = jax.tree.flatten(results)
    if not leaves:
        raise check.value_error(f"'{vertex.name}' returns nothing", "return an array")
    flat = _FlatFunction(
        vertex, given.arrays.with_shared(lifted), run, leaves, _count_states(given, results)
    )
    codelet = flat.codelet(vertex.count_cycles(given.rebuild(rows)))

    def build(graph: Any, sequence: Any, *tensors: Any) -> Any:
        return _add_vertices(flat, codelet, graph, sequence, tensors)

    def backward(operands: Arrays, cotangents: Arrays) -> list[jax.Array | None]:
        rule = None if vertex.rule is None else given.flatten_rule(vertex.rule, tree)
        at = dc.replace(flat.arrays, arrays=tuple(operands))
        return run_gradient(vertex.name, at, flat.run, leaves, cotangents, rule, run_function)

    arrays = run_with_gradient(build, backward, flat.arrays.arrays)
    return jax.tree.unflatten(tree, [TileArray(array, given.arrays.tiles) for array in arrays])


def _vector(access: Any, dtype: Any) -> Any:
    return access[poplar.Vector[poplar.type_of_dtype(dtype)]]


def _count_states(given: MapOperands, results: Any) -> int:
    """Returns how many arrays are states, which the function gives back as it got them."""
    vertex = given.vertex
    if not vertex.state:
        return 0
    states = given.rebuild(given.arrays.rows())[: len(vertex.state)]
    returned = results[-len(states) :] if isinstance(results, tuple) else ()
    if jax.tree.map(_describe, tuple(states)) != jax.tree.map(_describe, tuple(returned)):
        raise check.type_error(
            f"'{vertex.name}' returns {jax.tree.map(_describe, results)}",
            f"return a tuple with its state last: {jax.tree.map(_describe, tuple(states))}",
        )
    count = len(jax.tree.leaves(states))
    if any(home != given.arrays.tiles for home in given.arrays.homes[:count]):
        raise check.value_error(
            f"the state of '{vertex.name}' is not on its tiles", "put it there by gather"
        )
    return count


def _describe(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _add_vertices(
    flat: _FlatFunction, codelet: poplar.Codelet, graph: Any, sequence: Any, tensors: Sequence[Any]
) -> list[Any]:
    """Adds a compute set with a vertex on each tile; returns the results' tensors."""
    tiles, name = flat.arrays.tiles, flat.vertex.name
    fields: dict[str, Connection] = {}
    for n, (tensor, home) in enumerate(zip(tensors, flat.arrays.homes, strict=True)):
        if home is not None:
            put_rows_on_tiles(graph, tensor, home)
        fields[f"operand{n}"] = Connection(tensor, has_rows=home is not None)
    results: list[Any] = []
    for n, leaf in enumerate(flat.results[: len(flat.results) - flat.num_states]):
        kind = poplar.type_of_dtype(leaf.dtype)
        results.append(graph.addVariable(kind, (len(tiles), *leaf.shape), f"{name}/result{n}"))
        put_rows_on_tiles(graph, results[-1], tiles)
        fields[f"result{n}"] = Connection(results[-1])
    graph.addCodelets(codelet)
    add_compute_set(graph, sequence, name, codelet.name, tiles, fields)
    return [*results, *tensors[: flat.num_states]]
