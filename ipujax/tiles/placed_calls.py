"""Steps on given tiles: graphs as JAX functions whose derivatives are steps as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ipujax import poplar
from ipujax.operators import is_mapped, run_linear_map
from ipujax.tiles.tile_arrays import check

Arrays = Sequence[jax.Array]
Build = Callable[..., list[poplar.Tensor]]
"""As for `poplar.call`: a graph, a sequence, the operands' tensors -> the results' tensors."""


class Derivative(Protocol):
    """The derivative of a step in some of its operands, as steps on the same tiles."""

    def push_forward(self, operands: Arrays, numbers: Sequence[int], tangents: Arrays) -> Arrays:
        """Returns the tangents of the floating-point results.

        Args:
          operands: all operands.
          numbers: the indices of the operands that change.
          tangents: the tangents of these.
        """
        ...

    def pull_back(self, operands: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the cotangents of some operands.

        Args:
          operands: all operands.
          numbers: the indices of these operands.
          cotangents: the cotangents of the floating-point results.
        """
        ...


def run_step(build: Build, derivative: Derivative, arrays: Arrays) -> list[jax.Array]:
    """Runs a graph of one step, whose derivatives are further steps on the same tiles."""

    @jax.custom_jvp
    def run(*operands: jax.Array) -> list[jax.Array]:
        _refuse_vmap(operands)
        return poplar.call(build, *operands)

    def differentiate(
        operands: Arrays, tangents: Sequence[jax.Array | SymbolicZero]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        results = run(*operands)
        changing = {
            n: tangent
            for n, tangent in enumerate(tangents)
            if not isinstance(tangent, SymbolicZero)
        }
        numbers = list(changing)
        _refuse_vmap(list(changing.values()))
        result_tangents = run_linear_map(
            lambda fixed, changes: derivative.push_forward(fixed, numbers, changes),
            lambda fixed, cotangents: derivative.pull_back(fixed, numbers, cotangents),
            operands,
            list(changing.values()),
        )
        return results, fill_with_float0(results, result_tangents)

    run.defjvp(differentiate, symbolic_zeros=True)
    return run(*(jnp.asarray(array) for array in arrays))


def floating_numbers(arrays: Sequence[jax.Array | jax.ShapeDtypeStruct]) -> list[int]:
    """Returns the indices of the arrays that have derivatives: those of floating-point numbers."""
    return [n for n, array in enumerate(arrays) if jnp.issubdtype(array.dtype, jnp.floating)]


def fill_with_float0(
    arrays: Sequence[jax.Array | jax.ShapeDtypeStruct], floating: Arrays
) -> list[jax.Array]:
    """Returns a tangent for each array: those of floating-point ones, and float0 for the others."""
    tangents: list[Any] = [np.zeros(array.shape, jax.dtypes.float0) for array in arrays]
    for n, tangent in zip(floating_numbers(arrays), floating, strict=True):
        tangents[n] = tangent
    return tangents


def _refuse_vmap(arrays: Arrays) -> None:
    if any(map(is_mapped, arrays)):
        raise check.type_error(
            "vmap of a step on tiles: a tile's rows have no further axis",
            "map a vertex that has it: ipu.tiles.map(jax.vmap(vertex), ...)",
        )


def map_rows_to_tiles(graph: poplar.Graph, tensor: poplar.Tensor, tiles: Sequence[int]) -> None:
    """Maps row k of a tensor to tile k of a list."""
    for_rows = np.asarray(tiles).reshape(-1, *[1] * (tensor.rank() - 1))
    graph.map_elements(tensor.elements, np.broadcast_to(for_rows, tensor.elements.shape))
