"""Heat equations by hand on tiles, against published throughputs of chips.

The codes and their measurements are those of validation/finite_differences.py (simehaa/IPU@674d116,
TszwangKo/FYP_IPU_DEVITO@0908800, one GC200): boxes for tiles, and six bars of each for the workers.
A corner of the mesh stands for all of it, as all tiles do the same work.
"""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import program
from validation import finite_differences as stencils

Box = list[tuple[int, int]]


@poplar.codelet
def Heat(
    around: poplar.Input[poplar.Vector[poplar.FLOAT]],
    out: poplar.Output[poplar.Vector[poplar.FLOAT]],
):
    return {"out": jnp.zeros(out.shape, out.dtype)}


def cut(size: int, parts: int) -> list[tuple[int, int]]:
    return [*itertools.pairwise(i * size // parts for i in range(parts + 1))]


def part_of(tensor: poplar.Tensor, box: Box, halo: int) -> poplar.Tensor:
    """The points of a box, which counts without the border of the mesh, and some around it."""
    begin = [first + 1 - halo for first, _ in box]
    return tensor.slice(begin, [last + 1 + halo for _, last in box])


def one_step(mesh: list[int], vertex: stencils.Vertex) -> poplar.Engine:
    graph = poplar.Graph(poplar.IPUModel().createDevice())
    inner = [size - 2 for size in mesh]
    split = stencils.split_box(tuple(inner), 1472)
    sides = [cut(*each)[:3] for each in zip(inner, split, strict=True)]
    shape = [side[-1][1] + 2 for side in sides]
    old, new = (graph.addVariable(poplar.FLOAT, shape, name) for name in ("old", "new"))
    boxes: list[Box] = [list(box) for box in itertools.product(*sides)]
    for halo in (1, 0):
        for tile, box in enumerate(boxes):
            graph.setTileMapping(part_of(old, box, halo), tile)
            graph.setTileMapping(part_of(new, box, 0), tile)
    cs = graph.addComputeSet("heat")
    bars = [6] if len(mesh) == 2 else [2, 3]
    for tile, box in enumerate(boxes):
        cuts = [cut(last - first, n) for (first, last), n in zip(box, bars, strict=False)]
        for chosen in itertools.product(*cuts):
            begins = [first for first, _ in box]
            bar = [(b + x, b + y) for b, (x, y) in zip(begins, chosen, strict=False)]
            bar += box[len(bars) :]
            around, out = part_of(old, bar, 1).flatten(), part_of(new, bar, 0).flatten()
            made = graph.addVertex(cs, Heat, {"around": around, "out": out})
            graph.setTileMapping(made, tile)
            rows = math.prod(last - first for first, last in bar[:-1])
            points = bar[-1][1] - bar[-1][0]
            graph.setPerfEstimate(made, rows * stencils._row_cycles(points, vertex))  # pyright: ignore[reportPrivateUsage]
    return poplar.Engine(graph, program.Execute(cs), {"debug.readUnwritten": "zero"})


@pytest.mark.parametrize(
    ("mesh", "teraflops", "within"),
    [([8000] * 2, 1.28, 0.1), ([360] * 3, 1.44, 0.02), ([360] * 3, 1.45, 0.02)],
)
def test_a_step_is_near_the_measured_one(mesh: list[int], teraflops: float, within: float) -> None:
    report = one_step(mesh, stencils.PAIRS).report()
    operations = (2 + 2 * len(mesh)) * math.prod(size - 2 for size in mesh)
    assert operations / report.seconds / 1e12 == pytest.approx(teraflops, rel=within)
    closed_form = stencils.step_cycles(mesh, stencils.PAIRS, 1, report.target)
    assert report.cycles == pytest.approx(closed_form, rel=0.002)
    # The box in the middle has a neighbour on every side; no tile receives more.
    (moved,) = report.exchanges
    middle = len(report.compute_sets[0].vertices.nonzero()[0]) // 2
    assert moved.received_bytes[middle] == moved.received_bytes.max()
    assert np.count_nonzero(moved.received_bytes) == 3 ** len(mesh)
