"""Graphs of one step over given tiles, as functions of JAX with derivatives of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import poplar
from ipujax.operators import is_mapped
from ipujax.tiles.tile_arrays import check

Arrays = Sequence[jax.Array]


def run_with_gradient(
    build: Callable[..., Any],
    backward: Callable[[Arrays, Arrays], Sequence[jax.Array | None]],
    arrays: Arrays,
) -> list[jax.Array]:
    """Runs a graph; what is differentiated keeps its steps, and its gradient gets steps of its own.

    Args:
      build: as for `poplar.call`; returns a list of tensors.
      backward: the operands and the cotangents of the results -> the cotangents of the operands,
        None for those that have none.
      arrays: the operands.
    """

    @jax.custom_vjp
    def run(*operands: jax.Array) -> list[jax.Array]:
        if any(map(is_mapped, operands)):
            raise check.type_error(
                "vmap of a step on tiles: a tile's rows have no further axis",
                "map a vertex that has it: ipu.tiles.map(jax.vmap(vertex), ...)",
            )
        return poplar.call(build, *operands)

    def forward(*operands: jax.Array) -> tuple[list[jax.Array], Arrays]:
        return run(*operands), operands

    def backward_of(operands: Arrays, cotangents: Arrays) -> tuple[jax.Array | None, ...]:
        return tuple(backward(operands, cotangents))

    run.defvjp(forward, backward_of)
    return run(*(jnp.asarray(array) for array in arrays))


def put_rows_on_tiles(graph: poplar.Graph, tensor: poplar.Tensor, tiles: Sequence[int]) -> None:
    """Maps row k of a tensor to tile k of a list."""
    for_rows = np.asarray(tiles).reshape(-1, *[1] * (tensor.rank() - 1))
    graph.put_on_tiles(tensor.elements, np.broadcast_to(for_rows, tensor.elements.shape))
