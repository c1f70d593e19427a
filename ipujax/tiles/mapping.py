"""`ipu.tiles.map`: a vertex on each of some tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipujax.tiles.cpp_vertices import run_cpp_vertex
from ipujax.tiles.function_vertices import run_function
from ipujax.tiles.map_operands import read_operands
from ipujax.tiles.tile_arrays import TileTree, check
from ipujax.tiles.vertices import Vertex, as_vertex


@check.guard
def map(
    vertex: Vertex | Callable[..., Any], *operands: Any, tiles: Sequence[int] | None = None
) -> TileTree:
    """Runs a vertex on each of some tiles, all at the same time.

    In a program it is a compute set with one vertex on each of these tiles; rows that lie on other
    tiles, and arrays that do not lie on tiles, are exchanged before.

    Args:
      vertex: a function in JAX of one tile's arrays, or what `ipu.tiles.vertex` makes.
      *operands: pytrees. Of values on tiles the vertex on the k-th tile gets row k; other arrays it
        gets whole, and Python's numbers as they are.
      tiles: the tiles of the vertices; by default those of the first value on tiles.

    Returns:
      What the vertex returns, with values on these tiles for its arrays.

    Raises:
      poplar_error: numbers of rows that differ, wrong tiles, or a state on other tiles.
    """
    map_operands = read_operands(as_vertex(vertex), operands, tiles)
    is_cpp = map_operands.vertex.source is not None
    return run_cpp_vertex(map_operands) if is_cpp else run_function(map_operands)
