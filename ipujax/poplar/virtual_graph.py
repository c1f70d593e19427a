"""Virtual graphs: a graph seen with some of its tiles, numbered from 0 on."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from ipujax.poplar.devices import Target
from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import Vertex
from ipujax.poplar.tensors import Interval, Tensor

_OWN = ("_root", "_tiles")


@check.guard
class VirtualGraph(Graph):
    """A graph that puts things on some tiles of another one, to which all else belongs."""

    def __init__(self, root: Graph, tiles: Sequence[int]):
        object.__setattr__(self, "_root", root)
        object.__setattr__(self, "_tiles", tuple(tiles))

    @property
    def root(self) -> Graph:
        """The graph that holds everything."""
        return self._root

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_root"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._root, name, value)

    def getTarget(self) -> Target:
        """The target, with as many tiles as this graph has."""
        return dc.replace(self._root.getTarget(), ipus=1, tiles=len(self._tiles))

    def setTileMapping(self, what: Tensor | Vertex, tile: Any) -> None:
        """Puts a tensor, a slice of one, or a vertex on tiles; see `Graph.setTileMapping`."""
        if not isinstance(tile, (list, tuple)):
            self._root.setTileMapping(what, self._tiles[self._require_tile(tile, str(what))])
            return
        mapping: list[Sequence[Interval]] = [()] * self._root.getTarget().getNumTiles()
        for number, intervals in enumerate(tile):
            if intervals:
                mapping[self._tiles[self._require_tile(number, str(what))]] = intervals
        self._root.setTileMapping(what, mapping)

    def getTileMapping(self, tensor: Tensor) -> list[list[Interval]]:
        """Returns, for each tile of this graph, the intervals of the tensor's elements."""
        mapping = self._root.getTileMapping(tensor)
        return [mapping[tile] for tile in self._tiles]

    def createVirtualGraph(self, lowerTile: Any, upperTile: int | None = None) -> Graph:
        """Returns a graph of some tiles of this one; see `Graph.createVirtualGraph`."""
        chosen = self.choose_tiles(lowerTile, upperTile)
        return VirtualGraph(self._root, [self._tiles[tile] for tile in chosen])
