"""The size of the graph on the tiles: compute sets, vertices by kind, and edges."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from lowering.machine.kernels.code import CodeUse
from lowering.machine.profile import Graph


def measure_graph(uses: Iterable[CodeUse], *, outlines: bool = True) -> Graph:
    """Adds up the compute sets, vertices and edges of the operations of all IPUs.

    Args:
      uses: the operations, each signature once for each IPU.
      outlines: whether calls of one signature share their vertices.
    """
    compute_sets, edges, vertices = 0, 0, collections.Counter[str]()
    for use in uses:
        copies = use.count_code_copies(outlines)
        compute_sets += copies * use.compute_sets
        for vertex_kind in use.vertices:
            count = copies * vertex_kind.copies * vertex_kind.per_tile * vertex_kind.tiles
            vertices[vertex_kind.kind] += count
            edges += count * use.tensors
    return Graph(compute_sets=compute_sets, vertices=dict(vertices.most_common()), edges=edges)
