"""Copies of arrays to tiles: a row for each tile, or a copy on each."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax import poplar
from ipujax.operators import is_traced
from ipujax.poplar import program
from ipujax.tiles.placed_calls import Arrays, map_rows_to_tiles, run_step
from ipujax.tiles.tile_arrays import TileArray, TileTree, check, require_rows, require_tiles


@check.guard
def put_sharded(array: ArrayLike, tiles: Sequence[int]) -> TileArray:
    """Puts row k of an array on `tiles[k]`.

    Args:
      array: [tiles, ...], of an element type of Poplar.
      tiles: distinct tiles of an IPU, as many as there are rows.

    Raises:
      poplar_error: other numbers of rows than tiles, a tile that does not exist, or one twice.
    """
    array, tiles = jnp.asarray(array), require_tiles(tiles)
    require_rows(array.shape, tiles, "the array")
    rows = np.arange(len(tiles))
    return _RowCopy("put_sharded", rows, tiles, lambda cotangent: cotangent).run(array)


@check.guard
def put_replicated(array: ArrayLike, tiles: Sequence[int]) -> TileArray:
    """Puts a copy of an array on each of some tiles: `[tiles, *array.shape]`.

    Args:
      array: of an element type of Poplar.
      tiles: distinct tiles of an IPU.

    Raises:
      poplar_error: a tile that does not exist, or one twice.
    """
    array, tiles = jnp.asarray(array), require_tiles(tiles)
    rows = np.zeros(len(tiles), int)
    return _RowCopy("put_replicated", rows, tiles, _sum_rows).run(array[None])


@check.guard
def constant_sharded(array: ArrayLike, tiles: Sequence[int]) -> TileArray:
    """Puts row k of an array on `tiles[k]` as a constant, there from the program's start.

    Args:
      array: [tiles, ...], known when the function is traced, of an element type of Poplar.
      tiles: distinct tiles of an IPU, as many as there are rows.

    Raises:
      poplar_error: other numbers of rows than tiles, a tile that does not exist, or one twice; an
        array that is traced.
    """
    tiles = require_tiles(tiles)
    if is_traced(array):
        raise check.type_error("constant_sharded is given a traced array", "use put_sharded")
    constant = np.asarray(array)
    constant = constant.astype(jax.dtypes.canonicalize_dtype(constant.dtype))
    require_rows(constant.shape, tiles, "the array")
    poplar.type_of_dtype(constant.dtype)
    return TileArray(jnp.asarray(constant), tiles)


@check.guard
def gather(x: TileArray | ArrayLike, indices: Sequence[int], tiles: Sequence[int]) -> TileArray:
    """Puts row `indices[k]` of a value on `tiles[k]`; rows that are there already stay.

    Args:
      x: a value on tiles, or an array, [rows, ...].
      indices: known when the function is traced; rows may be missing, or be there more than once.
      tiles: distinct tiles of an IPU, as many as there are indices.

    Raises:
      poplar_error: an index outside of the rows, or another number of indices than tiles.
    """
    tiles, source_tiles = require_tiles(tiles), x.tiles if isinstance(x, TileArray) else None
    array = jnp.asarray(x.array if isinstance(x, TileArray) else x)
    rows = np.asarray(indices)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise check.wrong_type_error("a sequence of integers", indices, "indices")
    require_rows(rows.shape, tiles, "indices")
    count = array.shape[0] if array.ndim else 0
    if missing_rows := [int(row) for row in rows if not 0 <= row < count]:
        raise check.value_error(
            f"index {missing_rows[0]} of an array of {count} rows", f"rows are 0 to {count - 1}"
        )

    def add_rows(cotangent: jax.Array) -> jax.Array:
        return jnp.zeros(array.shape, cotangent.dtype).at[rows].add(cotangent)

    return _RowCopy("gather", rows, tiles, add_rows, source_tiles).run(array)


@check.guard
def barrier(*values: TileArray) -> TileTree:
    """Returns values on tiles as soon as all of them are ready: one, or a tuple of several.

    Args:
      *values: values on tiles.
    """
    for value in values:
        check.require_instance(value, TileArray, "a value", "values on tiles")
    return values[0] if len(values) == 1 else jax.lax.optimization_barrier(values)


def _sum_rows(cotangent: jax.Array) -> jax.Array:
    return cotangent.sum(0, keepdims=True)


@dc.dataclass(frozen=True)
class _RowCopy:
    """A copy of rows of an array to tiles.

    Attributes:
      name: the copy's name.
      rows: for each tile, the index of the row that it gets.
      tiles: the tiles.
      transpose: the cotangent of the result -> that of the array.
      source_tiles: the tiles of the array's rows; None for an array that is not on tiles.
    """

    name: str
    rows: np.ndarray
    tiles: tuple[int, ...]
    transpose: Callable[[jax.Array], jax.Array]
    source_tiles: tuple[int, ...] | None = None

    def run(self, array: jax.Array) -> TileArray:
        """Returns the rows on their tiles."""
        return TileArray(run_step(self.build, self, [array])[0], self.tiles)

    def build(
        self, graph: poplar.Graph, sequence: program.Sequence, source: poplar.Tensor
    ) -> list[poplar.Tensor]:
        """Adds the copy; see `poplar.call`."""
        if self.source_tiles is not None:
            map_rows_to_tiles(graph, source, self.source_tiles)
        shape = (len(self.tiles), *source.shape()[1:])
        copies = graph.addVariable(source.elementType(), shape, self.name)
        map_rows_to_tiles(graph, copies, self.tiles)
        chosen = poplar.Tensor(graph, source.elements[self.rows], source.elementType(), source.name)
        sequence.add(program.Copy(chosen, copies, debugContext=self.name))
        return [copies]

    def push_forward(self, operands: Arrays, numbers: Sequence[int], tangents: Arrays) -> Arrays:
        """Returns the same rows of the tangent, see `Derivative`."""
        return [self.run(tangent).array for tangent in tangents]

    def pull_back(self, operands: Arrays, numbers: Sequence[int], cotangents: Arrays) -> Arrays:
        """Returns the array's cotangent, which the planner computes, see `Derivative`."""
        return [self.transpose(cotangent) for cotangent in cotangents]
