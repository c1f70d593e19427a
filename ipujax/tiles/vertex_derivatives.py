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
      name: of the vertex.
      mapped: the arrays.
      function: what it computes, for JAX to differentiate; None for a vertex in C++.
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

        homes = [self.mapped.homes[n] for n in numbers]
        pushed = self._run(f"{self.name}_tangent", tangent, operands, tangents, homes)
        return [value.array for value in pushed]

    def pull_back(self, operands: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the cotangents of some arrays, see `Derivative`."""
        count = len(operands)

        def gradient(*arrays: jax.Array) -> Arrays:
            return self._pull_rows(arrays[:count], numbers, arrays[count:])

        homes = [self.mapped.tiles] * len(cotangents)
        pulled = self._run(f"{self.name}_gradient", gradient, operands, cotangents, homes)
        return [
            value.array.sum(0) if self.mapped.homes[n] is None else value.array
            for n, value in zip(numbers, pulled, strict=True)
        ]

    def _run(
        self,
        name: str,
        function: Function,
        operands: Arrays,
        changes: Arrays,
        homes: Sequence[tuple[int, ...] | None],
    ) -> list[TileArray]:
        """Maps a function of the operands, and of tangents or cotangents that lie at `homes`."""
        arrays = OnTiles(self.mapped.tiles, (*operands, *changes), (*self.mapped.homes, *homes))
        return self.map_function(plain_operands(Vertex(function, name), arrays))

    def _push_rows(self, arrays: Arrays, numbers: Sequence[int], tangents: Arrays) -> Arrays:
        """Returns the tangents of one tile's results, by the vertex's rule or by JAX."""
        if self.rule is not None:
            known = [self.results[n] for n in floating_numbers(self.results)]
            return jax.linear_transpose(
                lambda *given: tuple(self._pull_rows(arrays, numbers, given)), *known
            )(tuple(tangents))
        chosen = [arrays[n] for n in numbers]
        return jax.jvp(self._function_of(arrays, numbers), chosen, list(tangents))[1]

    def _pull_rows(self, arrays: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the cotangents of some of one tile's arrays, by the vertex's rule or by JAX."""
        if self.rule is None:
            chosen = [arrays[n] for n in numbers]
            return jax.vjp(self._function_of(arrays, numbers), *chosen)[1](list(cotangents))
        of_results = fill_with_float0(self.results, cotangents)
        by_array = dict(enumerate(self.rule(arrays, of_results)))
        given = [by_array.get(n) for n in numbers]
        return [
            jnp.zeros_like(arrays[n]) if cotangent is None else cotangent
            for n, cotangent in zip(numbers, given, strict=True)
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

        def run(*chosen: jax.Array) -> list[jax.Array]:
            now = dict(enumerate(arrays)) | dict(zip(numbers, chosen, strict=True))
            results = function(*now.values())
            return [results[n] for n in floating_numbers(results)]

        return run
