"""Virtual graphs: views of a graph with some of its tiles, numbered from 0 on."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from ipujax.poplar.devices import Target
from ipujax.poplar.exceptions import check, invalid_tile_mapping
from ipujax.poplar.graph import Graph
from ipujax.poplar.tensors import Interval, Tensor
from ipujax.poplar.user_lines import user_line


@check.guard
class VirtualGraph(Graph):
    """A view of another graph, which owns all variables and vertices, with some of its tiles.

    Args:
      root: the graph that holds everything.
      tiles: int64 [this graph's tiles]: their numbers there, IPU after IPU.
      ipus: the number of IPUs that they belong to, with as many tiles each.
    """

    def __init__(self, root: Graph, tiles: np.ndarray, ipus: int):
        object.__setattr__(self, "_root", root)
        object.__setattr__(self, "_tiles", tiles)
        object.__setattr__(self, "_ipus", ipus)

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
        tiles = len(self._tiles) // self._ipus
        return dc.replace(self._root.getTarget(), ipus=self._ipus, tiles=tiles)

    def getTileMapping(
        self, tensor: Tensor, requireComplete: bool = True, allowExternal: bool = False
    ) -> list[list[Interval]]:
        """Returns, for each tile of this graph, the intervals of the tensor's elements."""
        mapping = self._root.getTileMapping(tensor, requireComplete)
        external = {tile for tile, part in enumerate(mapping) if part} - {*self._tiles.tolist()}
        if external and not check.require_flag(allowExternal, "allowExternal"):
            raise invalid_tile_mapping(
                f"{tensor} is on tile {min(external)}, which this virtual graph has not",
                where=user_line(),
                fix="ask the graph that has it, or give allowExternal=True",
            )
        return [mapping[tile] for tile in self._tiles.tolist()]

    def tiles_of_root(self, tiles: int | np.ndarray) -> int | np.ndarray:
        """Returns the numbers of this graph's tiles in the graph that holds everything."""
        return self._tiles[tiles]
