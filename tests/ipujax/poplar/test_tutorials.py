"""Poplar's first tutorials and the example of a product, against NumPy."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import poputil, program


@poplar.codelet(cycles=lambda a, out: 5 + a.size)
def DotProductVertex(
    a: poplar.Input[poplar.Vector[poplar.FLOAT]],
    b: poplar.Input[poplar.Vector[poplar.FLOAT]],
    out: poplar.Output[poplar.FLOAT],
):
    return {"out": (a * b).sum()}


@poplar.codelet
def SumVertex(
    in_: poplar.Input[poplar.Vector[poplar.FLOAT]],
    out: poplar.Output[poplar.FLOAT],
):
    return {"out": in_.sum()}


def make_graph() -> tuple[poplar.Device, poplar.Graph]:
    device = poplar.IPUModel().createDevice()
    return device, poplar.Graph(device.getTarget())


def test_variables(capfd: pytest.CaptureFixture[str]) -> None:
    device, graph = make_graph()
    v1 = graph.addVariable(poplar.FLOAT, [4], "v1")
    v2 = graph.addVariable(poplar.FLOAT, [4], "v2")
    v3 = graph.addVariable(poplar.FLOAT, [4, 4], "v3")
    v4 = graph.addVariable(poplar.INT, [10], "v4")
    for t in (v1, v3, v4):
        graph.setTileMapping(t, 0)
    for i in range(4):
        graph.setTileMapping(v2[i], i)
    c1 = graph.addConstant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
    graph.setTileMapping(c1, 0)
    v5 = graph.addVariable(poplar.FLOAT, [4], "v5")
    graph.setTileMapping(v5, 7)
    graph.createHostWrite("v3-write", v3)
    graph.createHostRead("v3-read", v3)
    graph.createHostRead("v2", v2)
    graph.createHostRead("column", v3.transpose()[1])
    to = graph.addHostToDeviceFIFO("v4-input-stream", poplar.INT, 10)
    prog = program.Sequence([program.Copy(c1, v1), program.PrintTensor("v1-debug", v1)])
    prog.add(program.Copy(v1, v2))
    prog.add(program.Copy(v3.slice([1, 1], [2, 3]).flatten(), v1.slice(0, 2)))
    prog.add(program.Copy(v3.transpose()[0], v5))
    prog.add(program.Copy(to, v4))
    prog.add(program.PrintTensor("v4-0", v4))
    prog.add(program.Copy(to, v4))
    prog.add(program.PrintTensor("v4-1", v4))
    graph.createHostRead("v1", v1)
    graph.createHostRead("v5", v5)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    h3 = np.arange(16, dtype=np.float32).reshape(4, 4)
    engine.writeTensor("v3-write", h3)
    engine.connectStream("v4-input-stream", np.arange(20, dtype=np.int32))
    engine.run(0)
    np.testing.assert_array_equal(engine.readTensor("v3-read"), h3)
    np.testing.assert_array_equal(engine.readTensor("column"), h3[:, 1])
    np.testing.assert_array_equal(engine.readTensor("v2"), [1, 1.5, 2, 2.5])
    np.testing.assert_array_equal(engine.readTensor("v1"), [5, 6, 2, 2.5])
    np.testing.assert_array_equal(engine.readTensor("v5"), h3[:, 0])
    lines = capfd.readouterr().err.splitlines()
    printed = [line for line in lines if line.startswith(("v1-debug", "v4-"))]
    assert [line.partition(":")[0] for line in printed] == ["v1-debug", "v4-0", "v4-1"]
    assert "10,11,12" in printed[2]
    report = engine.report()
    assert report.memory.tile_categories["variables"][0, :4].tolist() == [16 + 64 + 40 + 4, 4, 4, 4]
    assert report.memory.tile_categories["constants"][0, 0] == 16
    to_v2 = report.exchanges[0]
    assert to_v2.received_bytes[:4].tolist() == [0, 4, 4, 4]
    assert to_v2.sent_bytes[:2].tolist() == [12, 0]


def test_vertices_sum_slices() -> None:
    device, graph = make_graph()
    v1 = graph.addVariable(poplar.FLOAT, [4], "v1")
    v2 = graph.addVariable(poplar.FLOAT, [4], "v2")
    graph.addCodelets(SumVertex)
    cs = graph.addComputeSet("computeSet")
    for i in range(4):
        graph.setTileMapping(v1[i], i)
        graph.setTileMapping(v2[i], i)
        v = graph.addVertex(cs, "SumVertex")
        graph.connect(v["in"], v1.slice(i, 4))
        graph.connect(v["out"], v2[i])
        graph.setTileMapping(v, i)
        graph.setPerfEstimate(v, 20)
    c1 = graph.addConstant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
    graph.setTileMapping(c1, 0)
    graph.createHostRead("v2", v2)
    engine = poplar.Engine(graph, program.Sequence([program.Copy(c1, v1), program.Execute(cs)]))
    engine.loadAndRun(device)
    np.testing.assert_array_equal(engine.readTensor("v2"), [7, 6, 4.5, 2.5])
    (only,) = engine.report().compute_sets
    assert only.tile_cycles[:5].tolist() == [120, 120, 120, 120, 0]
    assert only.runs == 1
    assert only.vertices.sum() == 4


@pytest.mark.parametrize("rows", [5, 40])
def test_product_of_a_matrix_and_a_vector(rows: int) -> None:
    cols, rng = 48, np.random.default_rng(0)
    device, graph = make_graph()
    graph.addCodelets(DotProductVertex)
    m = graph.addVariable(poplar.FLOAT, [rows, cols], "m")
    x = graph.addVariable(poplar.FLOAT, [cols], "x")
    y = graph.addVariable(poplar.FLOAT, [rows], "y")
    for t in (m, x, y):
        poputil.mapTensorLinearly(graph, t)
    cs = graph.addComputeSet("mul")
    for i in range(rows):
        v = graph.addVertex(cs, "DotProductVertex", {"a": m[i], "b": x, "out": y[i]})
        graph.setTileMapping(v, i)
        graph.setPerfEstimate(v, 20)
    to = graph.addHostToDeviceFIFO("x", poplar.FLOAT, cols)
    back = graph.addDeviceToHostFIFO("y", poplar.FLOAT, rows)
    graph.createHostWrite("m", m)
    steps = [program.Copy(to, x), program.Execute(cs), program.Copy(y, back)]
    engine = poplar.Engine(graph, program.Sequence(steps))
    engine.load(device)
    host_x = rng.normal(size=2 * cols).astype(np.float32)
    host_y, host_m = np.zeros(rows, np.float32), rng.normal(size=(rows, cols)).astype(np.float32)
    engine.connectStream("x", host_x)
    engine.connectStream("y", host_y)
    engine.writeTensor("m", host_m)
    for run in range(3):
        engine.run(0)
        part = host_x.reshape(2, cols)[run % 2]
        np.testing.assert_allclose(host_y, host_m @ part, rtol=2e-5, atol=1e-5)
    report = engine.report()
    assert report.compute_sets[0].tile_cycles.max() == 120
    assert report.cycles >= 120
    variables = report.memory.tile_categories["variables"]
    assert variables.sum() == 4 * (rows * cols + cols + rows)
