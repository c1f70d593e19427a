"""Values on given tiles of an IPU, and vertices that compute on them, within functions of JAX.

docs/tiles.md shows how they are used.
"""

from __future__ import annotations

from ipujax.tiles.cycle_counts import cycle_count as cycle_count
from ipujax.tiles.mapping import map as map
from ipujax.tiles.placing import barrier as barrier
from ipujax.tiles.placing import constant_sharded as constant_sharded
from ipujax.tiles.placing import gather as gather
from ipujax.tiles.placing import put_replicated as put_replicated
from ipujax.tiles.placing import put_sharded as put_sharded
from ipujax.tiles.tile_arrays import TileArray as TileArray
from ipujax.tiles.vertices import Vertex as Vertex
from ipujax.tiles.vertices import vertex as vertex

__all__ = [
    "TileArray",
    "Vertex",
    "barrier",
    "constant_sharded",
    "cycle_count",
    "gather",
    "map",
    "put_replicated",
    "put_sharded",
    "vertex",
]


def __dir__() -> list[str]:
    return __all__
