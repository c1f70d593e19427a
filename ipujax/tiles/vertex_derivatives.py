"""Derivatives of vertices, which vertices on the same tiles compute."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.tiles.map_operands import MapOperands, OnTiles, plain_operands
from ipujax.tiles.placed_calls import Arrays, fill_with_float0, floating_numbers
from ipujax.tiles.tile_arrays import TileArray, check
from ipujax.tiles.vertices import Vertex

Function = Callable[..., Sequence[jax.Array]]
"""The arrays of one tile -> arrays of one tile."""

Rule = Callable[[Arrays, Arrays], Sequence[jax.Array | None]]
"""One tile's arrays, and the results' cotangents -> the arrays' cotangents."""


@dc.dataclass(frozen=True)
class VertexDerivative:
    """The derivative of a vertex in some of the arrays that it is mapped over.

    Attributes:
      name: the vertex's name.
      mapped: the arrays that the vertex is mapped over.
      function: the function that JAX differentiates; None for a vertex in C++.
      results: the shapes and dtypes of its results.
      rule: the user's, of arrays without those that are closed over; None for JAX's own.
      map_function: runs a map of a function.
    """

    name: str
    mapped: OnTiles
    function: Function | None
    results: Sequence[jax.ShapeDtypeStruct]
    rule: Rule | None
    map_function: Callable[[MapOperands], list[TileArray]]

    def push_forward(self, operands: Arrays, numbers: Sequence[int], tangents: Arrays) -> Arrays:
        """Returns the tangents of the floating-point results, see `Derivative`."""
        count = len(operands)
        if not floating_numbers(self.results):
            return []

        def tangent(*arrays: jax.Array) -> Arrays:
            return self._push_rows(arrays[:count], numbers, arrays[count:])

        tangent_tiles = [self.mapped.row_tiles[n] for n in numbers]
        result_tangents = self._run(
            f"{self.name}_tangent", tangent, operands, tangents, tangent_tiles
        )
        return [value.array for value in result_tangents]

    def pull_back(self, operands: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the cotangents of some arrays, see `Derivative`."""
        count = len(operands)

        def gradient(*arrays: jax.Array) -> Arrays:
            return self._pull_rows(arrays[:count], numbers, arrays[count:])

        cotangent_tiles = [self.mapped.tiles] * len(cotangents)
        array_cotangents = self._run(
            f"{self.name}_gradient", gradient, operands, cotangents, cotangent_tiles
        )
        return [
            value.array.sum(0) if self.mapped.row_tiles[n] is None else value.array
            for n, value in zip(numbers, array_cotangents, strict=True)
        ]

    def _run(
        self,
        name: str,
        function: Function,
        operands: Arrays,
        changes: Arrays,
        change_tiles: Sequence[tuple[int, ...] | None],
    ) -> list[TileArray]:
        """Maps a function of the operands and of tangents or cotangents over the tiles."""
        arrays = OnTiles(
            self.mapped.tiles, (*operands, *changes), (*self.mapped.row_tiles, *change_tiles)
        )
        return self.map_function(plain_operands(Vertex(function, name), arrays))

    def _push_rows(self, arrays: Arrays, numbers: Sequence[int], tangents: Arrays) -> Arrays:
        """Returns the tangents of one tile's results, by the vertex's rule or by JAX."""
        if self.rule is not None:
            floating_results = [self.results[n] for n in floating_numbers(self.results)]
            return jax.linear_transpose(
                lambda *cotangents: tuple(self._pull_rows(arrays, numbers, cotangents)),
                *floating_results,
            )(tuple(tangents))
        changing_arrays = [arrays[n] for n in numbers]
        return jax.jvp(self._function_of(arrays, numbers), changing_arrays, list(tangents))[1]

    def _pull_rows(self, arrays: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the cotangents of some of one tile's arrays, by the vertex's rule or by JAX."""
        if self.rule is None:
            selected_arrays = [arrays[n] for n in numbers]
            _, pull_back = jax.vjp(self._function_of(arrays, numbers), *selected_arrays)
            return pull_back(list(cotangents))
        of_results = fill_with_float0(self.results, cotangents)
        # The rule knows nothing of the arrays that the function closes over.
        by_array = dict(enumerate(self.rule(arrays, of_results)))
        rule_cotangents = [by_array.get(n) for n in numbers]
        return [
            jnp.zeros_like(arrays[n]) if cotangent is None else cotangent
            for n, cotangent in zip(numbers, rule_cotangents, strict=True)
        ]

    def _function_of(self, arrays: Arrays, numbers: Sequence[int]) -> Function:
        """Returns one tile's floating-point results as a function of some of its arrays."""
        function = self.function
        if function is None:
            raise check.type_error(
                f"the derivative of vertex '{self.name}', which is in C++",
                f"give it a rule by {self.name}.defvjp, or put jax.lax.stop_gradient around its "
                "operands",
            )

        def run(*selected_arrays: jax.Array) -> list[jax.Array]:
            all_arrays = [*arrays]
            for n, array in zip(numbers, selected_arrays, strict=True):
                all_arrays[n] = array
            results = function(*all_arrays)
            return [results[n] for n in floating_numbers(results)]

        return run
