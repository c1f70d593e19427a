"""A program for tiles whose page is looked at."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

from ipujax import poplar
from ipujax.poplar import program

TILES = 200


@poplar.codelet(cycles=lambda x: 4 * x.size)
def AddOne(x: poplar.InOut[poplar.Vector[poplar.FLOAT]]):
    return {"x": x + 1}


def uneven() -> poplar.Engine:
    """Vertex i of 200 adds 1 to i + 1 elements, which lie one tile further on; then a copy back."""
    graph = poplar.Graph(poplar.IPUModel().createDevice())
    cs = graph.addComputeSet("uneven")
    end = 0
    x = graph.addVariable(poplar.FLOAT, [TILES * (TILES + 1) // 2], "x")
    for i in range(TILES):
        part = x.slice(end, end + i + 1)
        end += i + 1
        vertex = graph.addVertex(cs, AddOne, {"x": part})
        graph.setTileMapping(part, i + 1)
        graph.setTileMapping(vertex, i)
    graph.setInitialValue(x, 0)
    return poplar.Engine(graph, program.Repeat(3, program.Execute(cs)))
