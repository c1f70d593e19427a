"""Arrays brought to tiles: a row for each, or a copy on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.operators import is_traced
from ipujax.poplar import Tensor, program, type_of_dtype
from ipujax.tiles.placed_calls import Arrays, put_rows_on_tiles, run_with_gradient
from ipujax.tiles.tile_arrays import TileArray, check, require_rows, require_tiles


@check.guard
def put_sharded(array: Any, tiles: Sequence[int]) -> TileArray:
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
    return _bring(array, rows, tiles, "put_sharded", lambda cotangent: cotangent)


@check.guard
def put_replicated(array: Any, tiles: Sequence[int]) -> TileArray:
    """Puts a copy of an array on each of some tiles: `[tiles, *array.shape]`.

    Args:
      array: of an element type of Poplar.
      tiles: distinct tiles of an IPU.

    Raises:
      poplar_error: a tile that does not exist, or one twice.
    """
    array, tiles = jnp.asarray(array), require_tiles(tiles)
    rows = np.zeros(len(tiles), int)
    return _bring(array[None], rows, tiles, "put_replicated", lambda c: c.sum(0, keepdims=True))


@check.guard
def constant_sharded(array: Any, tiles: Sequence[int]) -> TileArray:
    """Has row k of an array on `tiles[k]` from the beginning, as a constant of the program.

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
    known = np.asarray(array)
    known = known.astype(jax.dtypes.canonicalize_dtype(known.dtype))
    require_rows(known.shape, tiles, "the array")
    type_of_dtype(known.dtype)
    return TileArray(jnp.asarray(known), tiles)


@check.guard
def gather(x: Any, indices: Sequence[int], tiles: Sequence[int]) -> TileArray:
    """Puts row `indices[k]` of a value on `tiles[k]`; rows that are there already stay.

    Args:
      x: a value on tiles, or an array, [rows, ...].
      indices: known when the function is traced; rows may be missing, or be there more than once.
      tiles: distinct tiles of an IPU, as many as there are indices.

    Raises:
      poplar_error: an index outside of the rows, or another number of indices than tiles.
    """
    tiles, homes = require_tiles(tiles), x.tiles if isinstance(x, TileArray) else None
    array = jnp.asarray(x.array if isinstance(x, TileArray) else x)
    rows = np.asarray(indices)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise check.wrong_type_error("a sequence of integers", indices, "indices")
    require_rows(rows.shape, tiles, "indices")
    count = array.shape[0] if array.ndim else 0
    if wrong := [int(row) for row in rows if not 0 <= row < count]:
        raise check.value_error(
            f"index {wrong[0]} of an array of {count} rows", f"rows are 0 to {count - 1}"
        )

    def backward(cotangent: jax.Array) -> jax.Array:
        return jnp.zeros(array.shape, cotangent.dtype).at[rows].add(cotangent)

    return _bring(array, rows, tiles, "gather", backward, homes)


@check.guard
def barrier(*values: TileArray) -> Any:
    """Gives values on tiles back when all of them are there: one, or a tuple of several.

    Args:
      *values: values on tiles.
    """
    for value in values:
        check.require_instance(value, TileArray, "a value", "values on tiles")
    return values[0] if len(values) == 1 else jax.lax.optimization_barrier(values)


def _bring(
    array: jax.Array,
    rows: np.ndarray,
    tiles: tuple[int, ...],
    name: str,
    backward: Callable[[jax.Array], jax.Array],
    homes: tuple[int, ...] | None = None,
) -> TileArray:
    """Copies rows of an array to tiles.

    Args:
      array: [rows, ...].
      rows: of each tile, the number of its row.
      tiles: the tiles.
      name: of the copy.
      backward: the cotangent of the result -> that of the array.
      homes: the tiles of the array's rows; None for one that is on no given tiles.
    """

    def build(graph: Any, sequence: Any, source: Any) -> Any:
        if homes is not None:
            put_rows_on_tiles(graph, source, homes)
        shape = (len(tiles), *source.shape()[1:])
        placed = graph.addVariable(source.elementType(), shape, name)
        put_rows_on_tiles(graph, placed, tiles)
        chosen = Tensor(graph, source.elements[rows], source.elementType(), source.name)
        sequence.add(program.Copy(chosen, placed, debugContext=name))
        return [placed]

    def backward_of(_: Arrays, cotangents: Arrays) -> list[jax.Array]:
        return [backward(cotangents[0])]

    return TileArray(run_with_gradient(build, backward_of, [array])[0], tiles)
