"""How large the graph is that the tiles hold: compute sets, vertices by kind, and edges."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from lowering.machine.kernels.code import CodeUse
from lowering.machine.profile import Graph


def graph_of(uses: Iterable[CodeUse], *, outlines: bool = True) -> Graph:
    """What the operations of all IPUs add up to.

    Args:
      uses: the operations, each signature once for each IPU.
      outlines: whether calls of one signature share their vertices.
    """
    compute_sets, edges, vertices = 0, 0, collections.Counter[str]()
    for use in uses:
        copies = use.copies(outlines)
        compute_sets += copies * use.compute_sets
        for each in use.vertices:
            count = copies * each.copies * each.per_tile * each.tiles
            vertices[each.kind] += count
            edges += count * use.tensors
    return Graph(compute_sets=compute_sets, vertices=dict(vertices.most_common()), edges=edges)
