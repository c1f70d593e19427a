"""Loops, branches, calls and cycles of several vertices on a tile."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import poputil, program
from tests.ipujax.poplar.test_tutorials import make_graph


@poplar.codelet(kind="MultiVertex", cycles=lambda x, by: 10 * x.size + int(by))
def AddValue(x: poplar.InOut[poplar.Vector[poplar.INT]], by: int):
    return {"x": x + by}


@poplar.codelet(cycles=30)
def IsLess(x: poplar.Input[poplar.INT], limit: int, out: poplar.Output[poplar.BOOL]):
    return {"out": x < limit}


def counting() -> tuple[poplar.Device, poplar.Graph, poplar.Tensor, poplar.Tensor]:
    device, graph = make_graph()
    x = graph.addVariable(poplar.INT, [3], "x")
    flag = graph.addVariable(poplar.BOOL, [], "flag")
    for tensor in (x, flag):
        graph.setTileMapping(tensor, 2)
    graph.setInitialValue(x, 0)
    graph.createHostRead("x", x)
    return device, graph, x, flag


def add(graph: poplar.Graph, x: poplar.Tensor, by: int) -> program.Execute:
    cs = graph.addComputeSet(f"add{by}")
    vertex = graph.addVertex(cs, AddValue, {"x": x})
    graph.setInitialValue(vertex["by"], by)
    graph.setTileMapping(vertex, 2)
    return program.Execute(cs)


def less(graph: poplar.Graph, x: poplar.Tensor, limit: int, flag: poplar.Tensor) -> program.Execute:
    cs = graph.addComputeSet("less")
    vertex = graph.addVertex(cs, IsLess, {"x": x[0], "limit": limit, "out": flag})
    graph.setTileMapping(vertex, 2)
    return program.Execute(cs)


def test_loops_and_branches() -> None:
    device, graph, x, flag = counting()
    one, hundred = add(graph, x, 1), add(graph, x, 100)
    loop = program.RepeatWhileTrue(less(graph, x, 7, flag), flag, program.Repeat(2, one))
    branch = program.If(flag, program.Sequence(), program.Call(graph.addFunction(hundred)))
    switch = program.Switch(x[0], [(108, add(graph, x, 1000))], add(graph, x, -1))
    engine = poplar.Engine(graph, [program.Sequence([loop, branch]), switch])
    engine.load(device)
    engine.run(0)
    np.testing.assert_array_equal(engine.readTensor("x"), [108, 108, 108])
    engine.run(1)
    engine.run(1)
    np.testing.assert_array_equal(engine.readTensor("x"), [1107, 1107, 1107])


def test_switches_take_cases_and_a_default_by_their_types() -> None:
    device, graph, x, _ = counting()
    by = {each: add(graph, x, each) for each in (1, 10, 100)}
    made = [
        program.Switch(x[0], by[1]),
        program.Switch(x[0], [(0, by[10])], by[1], "named"),
        program.Switch(x[0], [(0, by[10])], "named").add(5, by[100]),
        program.Switch.switchWithUnreachableDefault(x[0], [(0, by[10])]).add(3, by[100]),
    ]
    engine = poplar.Engine(graph, made)
    graph.createHostWrite("x", x)
    engine.load(device)
    for index, expected in enumerate([(1, 4, 6), (10, 4, 6), (10, 3, 105), (10, 103, 5)]):
        for value, after in zip((0, 3, 5), expected, strict=True):
            engine.writeTensor("x", [value] * 3)
            engine.run(index)
            np.testing.assert_array_equal(engine.readTensor("x"), [after] * 3)
    with pytest.raises(poplar.type_error, match="cases"):
        program.Switch(x[0], 3)


def test_streams_within_a_loop_come_in_their_order() -> None:
    device, graph, x, _ = counting()
    to = graph.addHostToDeviceFIFO("to", poplar.INT, 3)
    back = graph.addDeviceToHostFIFO("back", poplar.INT, 3)
    body = [program.Copy(to, x), add(graph, x, 5), program.Copy(x, back)]
    engine = poplar.Engine(graph, program.Repeat(4, program.Sequence(body)))
    engine.load(device)
    given, got = np.arange(12, dtype=np.int32), np.zeros(12, np.int32)
    engine.connectStream("to", given)
    engine.connectStream("back", got)
    engine.run()
    np.testing.assert_array_equal(got, given + 5)
    (cost,) = engine.report().compute_sets
    assert cost.runs == 4
    assert cost.tile_cycles[2] == 35


@pytest.mark.parametrize(
    ("cycles", "expected"), [([10] * 7, 120), ([40, 10, 10, 10, 10, 10, 5], 240)]
)
def test_six_workers_take_vertices_in_their_order(cycles: list[int], expected: int) -> None:
    _, graph = make_graph()
    x = graph.addVariable(poplar.INT, [7], "x")
    out = graph.addVariable(poplar.BOOL, [7], "out")
    graph.setInitialValue(x, 1)
    cs = graph.addComputeSet("results")  # as the model calls the exchange after it
    for i, count in enumerate(cycles):
        vertex = graph.addVertex(cs, IsLess, {"x": x[i], "limit": 3, "out": out[i]})
        graph.setTileMapping(vertex, 4)
        graph.setPerfEstimate(vertex, count)
    for tensor in (x, out):
        poputil.mapTensorLinearly(graph, tensor)
    report = poplar.Engine(graph, program.Execute(cs)).report()
    assert report.compute_sets[0].tile_cycles[4] == expected
    assert report.compute_sets[0].tile_cycles.sum() == expected
    assert [e.received_bytes.max() for e in report.exchanges] == [28, 7]


@pytest.mark.parametrize("size", [1, 31, 64, 1000, 100_000])
def test_linear_mapping_in_grains(size: int) -> None:
    _, graph = make_graph()
    x = graph.addVariable(poplar.FLOAT, [size], "x")
    poputil.mapTensorLinearly(graph, x)
    sizes = [sum(i.size() for i in tile) for tile in graph.getTileMapping(x)]
    used = [n for n in sizes if n]
    grains = -(-size // 2)
    edges = [min(2 * (i * grains // len(used)), size) for i in range(len(used) + 1)]
    assert used == np.diff(edges).tolist()
    assert sizes[: len(used)] == used
    assert len(used) == 1 or min(used[:-1]) >= 32


@pytest.mark.parametrize("seed", range(6))
def test_copies_between_views_agree_with_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    device, graph = make_graph()
    a = graph.addVariable(poplar.FLOAT, [4, 6], "a")
    b = graph.addVariable(poplar.FLOAT, [5, 6], "b")
    for tensor in (a, b):
        poputil.mapTensorLinearly(graph, tensor)
        graph.createHostWrite(tensor.name, tensor)
        graph.createHostRead(tensor.name, tensor)
    both = poplar.concat([a, b])
    views = [
        (both.slice(2, 6), a),
        (both.transpose().slice(1, 4).reverse(1), both.slice(3, 6, 1).transpose()),
        (both[3].broadcast(5, 0).reshape([5, 6]), b),
        (both.subSample(2, 0), both.slice(1, 6).dimShuffle([0, 1])),
    ]
    src, dst = views[seed % 4]
    engine = poplar.Engine(graph, program.Copy(src, dst))
    engine.load(device)
    flat = rng.normal(size=54).astype(np.float32)
    engine.writeTensor("a", flat[:24])
    engine.writeTensor("b", flat[24:])
    engine.run()
    flat[dst.elements] = flat[src.elements]
    np.testing.assert_array_equal(engine.readTensor("a").reshape(-1), flat[:24])
    np.testing.assert_array_equal(engine.readTensor("b").reshape(-1), flat[24:])
