"""The bytes that move between the tiles of elements and those of vertices, and between IPUs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

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


def find_exchange(
    graph: Graph, edges: Sequence[tuple[np.ndarray, np.ndarray, int]], *, inwards: bool
) -> Exchange:
    """Returns what moves between the tiles of elements and those of vertices.

    Args:
      graph: the graph.
      edges: elements [vertices, n], tiles of the vertices [vertices], bytes of an element.
      inwards: from the elements to the vertices.
    """
    target = graph.getTarget()
    tiles, ipus, tiles_per_ipu = target.getNumTiles(), target.ipus, target.tiles
    totals = np.zeros((4, tiles), np.int64)
    flows = np.zeros((ipus, ipus), np.int64)
    for size in {size for *_, size in edges}:
        elements, at = _distinct_pairs(graph, [each for each in edges if each[2] == size])
        home = graph.tile_of[elements]
        is_far = home // tiles_per_ipu != at // tiles_per_ipu
        for kind, chosen in enumerate((~is_far, is_far)):
            copies = np.bincount(at[chosen], minlength=tiles) * size
            senders = graph.tile_of[np.unique(elements[chosen])]
            pair = (copies, np.bincount(senders, minlength=tiles) * size)
            totals[2 * kind : 2 * kind + 2] += pair if inwards else pair[::-1]
        _add_flows(flows, elements[is_far], home[is_far], at[is_far], tiles_per_ipu, size, inwards)
    received, sent, far_received, far_sent = totals
    return Exchange(received, sent, far_received, far_sent, flows, inwards)


def _distinct_pairs(
    graph: Graph, edges: Sequence[tuple[np.ndarray, np.ndarray, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the elements that lie elsewhere than a vertex that uses them, and its tile, once."""
    pairs: list[np.ndarray] = []
    for elements, where, _ in edges:
        remote = graph.tile_of[elements] != where[:, None]
        keys = elements + where[:, None].astype(np.int64) * graph.size
        pairs.append(keys[remote])
    distinct = np.unique(np.concatenate(pairs))
    at, elements = np.divmod(distinct, max(graph.size, 1))
    return elements, at


def _add_flows(
    flows: np.ndarray,
    elements: np.ndarray,
    home: np.ndarray,
    at: np.ndarray,
    tiles_per_ipu: int,
    size: int,
    inwards: bool,
) -> None:
    """Adds the bytes of elements between two IPUs, each element once for each pair of IPUs."""
    ends = np.stack([elements, home // tiles_per_ipu, at // tiles_per_ipu])
    _, homes, users = np.unique(ends, axis=1)
    np.add.at(flows, (homes, users) if inwards else (users, homes), size)


def join_between_ipus(*exchanges: Exchange) -> BetweenIpus | None:
    """Returns what exchanges move between IPUs together; None if that is nothing."""
    flows = np.sum([each.flows for each in exchanges], axis=0)
    if not np.any(flows):
        return None
    pairs = np.argwhere(flows)
    return BetweenIpus(
        ipus=len(flows),
        flows=tuple((int(a), int(b), int(flows[a, b])) for a, b in pairs),
        received=_total([each.far_received for each in exchanges]),
        sent=_total([each.far_sent for each in exchanges]),
        copies=_total([e.far_received if e.inwards else e.far_sent for e in exchanges]),
    )


def _total(numbers: Sequence[np.ndarray]) -> TileNumbers:
    return TileNumbers.from_array(np.sum(numbers, axis=0))
