"""Values on given tiles of an IPU, and vertices that compute on them, within functions of JAX.

docs/tiles.md shows how they are used.
"""

from __future__ import annotations

from ipujax.tiles.mapping import map as map
from ipujax.tiles.placing import put_sharded as put_sharded
from ipujax.tiles.tile_arrays import TileArray as TileArray
from ipujax.tiles.vertices import Vertex as Vertex
from ipujax.tiles.vertices import vertex as vertex

__all__ = ["TileArray", "Vertex", "map", "put_sharded", "vertex"]
