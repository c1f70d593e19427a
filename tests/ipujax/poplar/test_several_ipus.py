"""Graphs on several IPUs: tiles numbered through, and exchanges between IPUs."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np
import pytest

import ipujax as ipu
from ipujax import poplar
from ipujax.poplar import poplin, popops, poputil, program

TILES = 1472


@poplar.codelet(cycles=lambda x: 10 * x.size)
def Square(
    x: poplar.Input[poplar.Vector[poplar.FLOAT]], y: poplar.Output[poplar.Vector[poplar.FLOAT]]
):
    return {"y": x * x}


def two_ipus() -> tuple[poplar.Device, poplar.Graph]:
    model = poplar.IPUModel()
    model.numIPUs = 2
    device = model.createDevice()
    return device, poplar.Graph(device)


def squares_in_a_ring() -> tuple[poplar.Device, poplar.Graph, list[program.Program]]:
    """Four rows on two IPUs: each tile squares the next one's row; all go to a fifth tile."""
    device, graph = two_ipus()
    x = graph.addVariable(poplar.FLOAT, [4, 100], "x")
    y = graph.addVariable(poplar.FLOAT, [4, 100], "y")
    z = graph.addVariable(poplar.FLOAT, [400], "z")
    graph.setInitialValue(x, np.arange(400))
    graph.setTileMapping(z, TILES + 7)
    cs = graph.addComputeSet("square")
    for i, tile in enumerate((0, 1, TILES, TILES + 5)):
        vertex = graph.addVertex(cs, Square, {"x": x[(i + 1) % 4], "y": y[i]})
        for each in (x[i], y[i], vertex):
            graph.setTileMapping(each, tile)
    graph.createHostRead("z", z)
    return device, graph, [program.Execute(cs), program.Copy(y.flatten(), z)]


def test_exchanges_between_ipus_are_steps_of_their_own() -> None:
    device, graph, steps = squares_in_a_ring()
    sequence = program.Sequence(steps)
    count = poplar.cycleCount(graph, sequence, TILES)
    graph.createHostRead("count", count)
    engine = poplar.Engine(graph, sequence)
    engine.loadAndRun(device)
    x = np.arange(400, dtype=np.float32).reshape(4, 100)
    np.testing.assert_array_equal(engine.readTensor("z").reshape(4, 100), np.roll(x, -1, 0) ** 2)
    report = engine.report()
    assert report.num_ipus == 2
    sets = [(c.name, c.ipu, np.flatnonzero(c.tile_cycles).tolist()) for c in report.compute_sets]
    assert sets == [("square", 0, [0, 1]), ("square", 1, [0, 5])]
    assert all(c.tile_cycles.max() == 6000 for c in report.compute_sets)
    moved = [
        (e.name, e.ipu, e.received_bytes.nonzero()[0].tolist(), int(e.sent_bytes.sum()))
        for e in report.exchanges
    ]
    assert moved == [
        ("square", 0, [0], 400),  # row 1 from tile 1
        ("square", 0, [1], 400),  # row 2 comes from the other IPU, row 0 goes there
        ("Copy", 0, [], 800),
        ("square", 1, [0], 400),
        ("square", 1, [5], 400),
        ("Copy", 1, [7], 800),
        ("Copy", 1, [7], 0),
    ]
    # Two rows each way share two links within the square; only one IPU sends in the copy.
    between = {s.name: s.cycles for s in report.steps if s.kind == "inter_ipu" and s.ipu == 1}
    square, copy = between["ipu_superstep/square"], between["ipu_superstep/Copy"]
    assert 2066 < square < copy < 2066 + 800 / 8
    assert copy - 2066 == pytest.approx(2 * (square - 2066), abs=1)
    assert report.cycles == engine.readTensor("count")[0]
    variables = report.memory.tile_categories["variables"]
    assert variables.shape == (2, TILES)
    assert variables[0, :3].tolist() == [800, 800, 0]
    assert variables[1, [0, 5, 7]].tolist() == [800 + 8, 800, 1600]
    assert report.memory.tile_categories["temporaries"][1, [0, 5]].tolist() == [400, 400]


def test_reports_of_two_ipus_go_into_files_and_sum_up(tmp_path) -> None:
    _, graph, steps = squares_in_a_ring()
    engine = poplar.Engine(graph, program.Sequence(steps))
    report = engine.report()
    report.to_html(tmp_path / "report.html")
    report.to_perfetto(tmp_path / "trace.json")
    report.to_json(tmp_path / "report.json")
    again = ipu.report.load(tmp_path / "report.json")
    assert again.num_ipus == 2
    np.testing.assert_array_equal(again.memory.tile_peak_bytes, report.memory.tile_peak_bytes)
    for causes in (report.breakdown, again.breakdown):
        assert causes is not None
        assert sum(causes.values()).tolist() == [report.cycles] * 2
    assert "copies between IPUs" in str(report)


def test_a_virtual_graph_is_one_of_the_ipus() -> None:
    device, graph = two_ipus()
    assert graph.getTarget().getNumTiles() == 2 * TILES
    second = graph.createVirtualGraph(TILES, 2 * TILES)
    a = second.addVariable(poplar.FLOAT, [300, 40], "a")
    b = second.addVariable(poplar.FLOAT, [40], "b")
    poputil.mapTensorLinearly(second, a)
    second.setTileMapping(b, 3)
    for tensor, value in ((a, 1.5), (b, 2.0)):
        graph.setInitialValue(tensor, value)
    tiles = [tile for tile, intervals in enumerate(graph.getTileMapping(a)) if intervals]
    assert tiles == [*range(TILES, TILES + len(tiles))]
    with pytest.raises(poplar.invalid_tile_mapping, match="tile 2944"):
        graph.setTileMapping(a, 2 * TILES)
    steps = program.Sequence()
    popops.addInPlace(second, a, b.broadcast(300, 0).reshape([300, 40]), steps)
    out = poplin.matMul(second, a, a.transpose(), steps)
    second.createHostRead("out", out)
    engine = poplar.Engine(graph, steps)
    engine.loadAndRun(device)
    np.testing.assert_allclose(engine.readTensor("out"), np.full((300, 300), 40 * 3.5**2))
    (added,) = [c for c in engine.report().compute_sets if c.name.startswith("add")]
    assert added.ipu == 1
    assert not any(step.kind == "inter_ipu" for step in engine.report().steps)


def product_report(ipus: int, first_tile: int, last_tile: int) -> ipu.report.Report:
    """The report of a product of two matrices on some of the tiles; its numbers are checked."""
    model = poplar.IPUModel()
    model.numIPUs = ipus
    device = model.createDevice()
    graph = poplar.Graph(device)
    part = graph.createVirtualGraph(first_tile, last_tile)
    a = part.addVariable(poplar.FLOAT, [256, 256], "a")
    b = part.addVariable(poplar.FLOAT, [256, 128], "b")
    for tensor, value in ((a, 1.5), (b, 2.0)):
        poputil.mapTensorLinearly(part, tensor)
        graph.setInitialValue(tensor, value)
    steps = program.Sequence()
    out = poplin.matMul(part, a, b, steps)
    graph.createHostRead("out", out)
    engine = poplar.Engine(graph, steps)
    engine.loadAndRun(device)
    np.testing.assert_array_equal(engine.readTensor("out"), np.full((256, 128), 256 * 3.0))
    return engine.report()


def test_a_product_on_one_of_several_ipus_costs_what_it_does_alone() -> None:
    alone, within = product_report(1, 0, TILES), product_report(2, TILES, 2 * TILES)
    assert within.cycles == alone.cycles
    (product,) = [c for c in within.compute_sets if c.tile_cycles.any()]
    assert product.ipu == 1
    assert not within.exchanges


def test_a_product_over_two_ipus_moves_operands_and_partial_results_between_them() -> None:
    report = product_report(2, 0, 2 * TILES)
    half = 256 * 128 * 4 // 2
    # `a` stays where it lies: each IPU gets half of `b`, and the other's partials of half of `out`.
    moved = {each.ipu: each for each in report.exchanges}
    for each in moved.values():
        assert each.received_bytes.sum() == pytest.approx(2 * half, rel=0.2)
        assert each.sent_bytes.sum() == pytest.approx(2 * half, rel=0.2)
    assert sum(each.received_bytes.sum() for each in moved.values()) == 4 * half
    (between,) = [s for s in report.steps if s.kind == "inter_ipu" and s.ipu == 0]
    assert between.cycles > 2 * half / 1000
