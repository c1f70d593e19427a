"""Arrays brought to tiles: a row for each, or a copy on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ipujax.poplar import program
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

    def build(graph: Any, sequence: Any, source: Any) -> Any:
        placed = graph.addVariable(source.elementType(), source.shape(), "put_sharded")
        put_rows_on_tiles(graph, placed, tiles)
        sequence.add(program.Copy(source, placed, debugContext="put_sharded"))
        return [placed]

    def backward(_: Arrays, cotangents: Arrays) -> Arrays:
        return cotangents

    return TileArray(run_with_gradient(build, backward, [array])[0], tiles)
