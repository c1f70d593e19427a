"""The bytes that move between the tiles of elements and those of vertices, and between IPUs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ipujax.operators import BetweenIpus, TileNumbers
from ipujax.poplar.graph import Graph


@dc.dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """The bytes that tiles receive and send before, or after, vertices run.

    Attributes:
      received: int64 [tiles], from tiles of the same IPU.
      sent: int64 [tiles], to tiles of the same IPU.
      far_received: int64 [tiles], from tiles of other IPUs.
      far_sent: int64 [tiles], to tiles of other IPUs.
      flows: int64 [ipus, ipus]: from one IPU to another, what several tiles there get once.
      inwards: whether it comes before the vertices run.
    """

    received: np.ndarray
    sent: np.ndarray
    far_received: np.ndarray
    far_sent: np.ndarray
    flows: np.ndarray
    inwards: bool


class Edges(NamedTuple):
    """The elements that vertices read, or write, through one field.

    Attributes:
      elements: the elements' numbers, int64 [vertices, n].
      tiles: the vertices' tiles, int [vertices].
      element_bytes: the bytes of an element.
    """

    elements: np.ndarray
    tiles: np.ndarray
    element_bytes: int


def find_exchange(graph: Graph, edges: Sequence[Edges], *, inwards: bool) -> Exchange:
    """Returns the bytes that move between the tiles of elements and those of vertices.

    Args:
      graph: the graph.
      edges: the elements and tiles of vertices.
      inwards: whether data moves from the elements to the vertices.
    """
    target = graph.getTarget()
    num_tiles, tiles_per_ipu = target.getNumTiles(), target.tiles
    totals = np.zeros((4, num_tiles), np.int64)
    flows = np.zeros((target.ipus, target.ipus), np.int64)
    for size in {edge.element_bytes for edge in edges}:
        elements, vertex_tiles = _distinct_pairs(
            graph, [edge for edge in edges if edge.element_bytes == size]
        )
        element_ipus = graph.tile_of[elements] // tiles_per_ipu
        vertex_ipus = vertex_tiles // tiles_per_ipu
        is_far = element_ipus != vertex_ipus
        for kind, chosen in enumerate((~is_far, is_far)):
            copies = np.bincount(vertex_tiles[chosen], minlength=num_tiles) * size
            senders = graph.tile_of[np.unique(elements[chosen])]
            pair = (copies, np.bincount(senders, minlength=num_tiles) * size)
            totals[2 * kind : 2 * kind + 2] += pair if inwards else pair[::-1]
        # An element moves once from one IPU to another, however many tiles there use it.
        crossings = np.stack([elements, element_ipus, vertex_ipus])[:, is_far]
        _, at_element, at_vertex = np.unique(crossings, axis=1)
        np.add.at(flows, (at_element, at_vertex) if inwards else (at_vertex, at_element), size)
    received, sent, far_received, far_sent = totals
    return Exchange(received, sent, far_received, far_sent, flows, inwards)


def _distinct_pairs(graph: Graph, edges: Sequence[Edges]) -> tuple[np.ndarray, np.ndarray]:
    """Returns elements and the other tiles that use them, each pair once."""
    pairs: list[np.ndarray] = []
    for edge in edges:
        tiles = edge.tiles[:, None].astype(np.int64)
        pairs.append((edge.elements + tiles * graph.size)[graph.tile_of[edge.elements] != tiles])
    vertex_tiles, elements = np.divmod(np.unique(np.concatenate(pairs)), max(graph.size, 1))
    return elements, vertex_tiles


def join_between_ipus(*exchanges: Exchange) -> BetweenIpus | None:
    """Returns the traffic between IPUs of some exchanges together; None if there is none."""
    flows = np.sum([exchange.flows for exchange in exchanges], axis=0)
    if not np.any(flows):
        return None
    pairs = np.argwhere(flows)
    copies = [e.far_received if e.inwards else e.far_sent for e in exchanges]
    return BetweenIpus(
        ipus=len(flows),
        flows=tuple((int(a), int(b), int(flows[a, b])) for a, b in pairs),
        received=_total([exchange.far_received for exchange in exchanges]),
        sent=_total([exchange.far_sent for exchange in exchanges]),
        copies=_total(copies),
    )


def _total(numbers: Sequence[np.ndarray]) -> TileNumbers:
    return TileNumbers.from_array(np.sum(numbers, axis=0))
