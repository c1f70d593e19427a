"""Maps of vertices in JAX: functions of one tile's arrays."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import poplar
from ipujax.operators import lift_closed_over
from ipujax.poplar import program
from ipujax.tiles.compute_sets import Connection, add_compute_set
from ipujax.tiles.map_operands import MapOperands, OnTiles
from ipujax.tiles.placed_calls import map_rows_to_tiles, run_step
from ipujax.tiles.tile_arrays import TileArray, TileTree, check
from ipujax.tiles.vertex_derivatives import VertexDerivative
from ipujax.tiles.vertices import Vertex


@dc.dataclass(frozen=True)
class _FlatFunction:
    """A function of one tile's arrays, all of them vectors of its codelet.

    Attributes:
      vertex: the vertex.
      arrays: the arrays that it is mapped over, with the values that it closes over.
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

        def compute(**fields: jax.Array) -> Mapping[str, jax.Array]:
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
            name=self.vertex.name,
            function=compute,
            kind=self.vertex.kind,
            fields=fields,
            plain={},
            cycles=cycles,
            parameters={field: field for field in fields},
        )


def run_function(operands: MapOperands) -> TileTree:
    """Runs a function in JAX on each tile, and returns its results on tiles."""
    vertex, rows = operands.vertex, operands.arrays.rows()
    run, closed_over, results = lift_closed_over(
        lambda *arrays: vertex.function(*operands.rebuild(arrays)), rows
    )
    leaves, tree = jax.tree.flatten(results)
    if not leaves:
        raise check.value_error(f"'{vertex.name}' returns nothing", "return an array")
    arrays = operands.arrays.with_shared(closed_over)
    flat = _FlatFunction(vertex, arrays, run, leaves, _count_states(operands, results))
    codelet = flat.codelet(vertex.count_cycles(operands.rebuild(rows)))

    def build(
        graph: poplar.Graph, sequence: program.Sequence, *tensors: poplar.Tensor
    ) -> list[poplar.Tensor]:
        return _add_vertices(flat, codelet, graph, sequence, tensors)

    rule = None if vertex.rule is None else operands.flatten_rule(vertex.rule, tree)
    derivative = VertexDerivative(vertex.name, arrays, run, leaves, rule, run_function)
    on_tiles = [
        TileArray(array, arrays.tiles) for array in run_step(build, derivative, arrays.arrays)
    ]
    return jax.tree.unflatten(tree, on_tiles)


def _vector(access: type, dtype: np.dtype) -> Any:
    return access[poplar.Vector[poplar.type_of_dtype(dtype)]]  # type: ignore[index]


def _count_states(operands: MapOperands, results: Any) -> int:
    """Returns how many arrays are states, which the function must return with equal shapes."""
    vertex = operands.vertex
    if not vertex.state:
        return 0
    states = operands.rebuild(operands.arrays.rows())[: len(vertex.state)]
    returned = results[-len(states) :] if isinstance(results, tuple) else ()
    if jax.tree.map(_describe, tuple(states)) != jax.tree.map(_describe, tuple(returned)):
        raise check.type_error(
            f"'{vertex.name}' returns {jax.tree.map(_describe, results)}",
            f"return a tuple with its state last: {jax.tree.map(_describe, tuple(states))}",
        )
    count = len(jax.tree.leaves(states))
    if any(
        tiles_of_rows != operands.arrays.tiles
        for tiles_of_rows in operands.arrays.row_tiles[:count]
    ):
        raise check.value_error(
            f"the state of '{vertex.name}' is not on its tiles", "put it there by gather"
        )
    return count


def _describe(leaf: jax.Array | jax.ShapeDtypeStruct) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _add_vertices(
    flat: _FlatFunction,
    codelet: poplar.Codelet,
    graph: poplar.Graph,
    sequence: program.Sequence,
    tensors: Sequence[poplar.Tensor],
) -> list[poplar.Tensor]:
    """Adds a compute set with a vertex on each tile; returns the results' tensors."""
    tiles, name = flat.arrays.tiles, flat.vertex.name
    fields: dict[str, Connection] = {}
    for n, (tensor, tiles_of_rows) in enumerate(zip(tensors, flat.arrays.row_tiles, strict=True)):
        if tiles_of_rows is not None:
            map_rows_to_tiles(graph, tensor, tiles_of_rows)
        fields[f"operand{n}"] = Connection(tensor, has_rows=tiles_of_rows is not None)
    results: list[poplar.Tensor] = []
    for n, leaf in enumerate(flat.results[: len(flat.results) - flat.num_states]):
        kind = poplar.type_of_dtype(leaf.dtype)
        results.append(graph.addVariable(kind, (len(tiles), *leaf.shape), f"{name}/result{n}"))
        map_rows_to_tiles(graph, results[-1], tiles)
        fields[f"result{n}"] = Connection(results[-1])
    graph.addCodelets(codelet)
    add_compute_set(graph, sequence, name, codelet.name, tiles, fields)
    return [*results, *tensors[: flat.num_states]]
