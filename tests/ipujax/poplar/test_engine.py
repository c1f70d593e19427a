"""Engines: options, streams by callbacks, remote buffers, virtual graphs."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import engine_options, poputil, program
from tests.ipujax.poplar.test_control import add, counting
from tests.ipujax.poplar.test_tutorials import make_graph


def loaded(device: poplar.Device, graph: poplar.Graph, run: object) -> poplar.Engine:
    engine = poplar.Engine(graph, run)
    engine.load(device)
    return engine


def test_options_of_cpp_are_accepted_and_listed_once(caplog: pytest.LogCaptureFixture) -> None:
    _, graph, x, _ = counting()
    engine_options._log_options_without_effect.cache_clear()  # pyright: ignore[reportPrivateUsage]
    options = {"target.saveArchive": "a", "opt.enableInlining": "true", "debug.verify": False}
    with caplog.at_level(logging.INFO, "ipujax"):
        for _ in range(2):
            poplar.Engine(graph, add(graph, x, 1), options)
    (line,) = [r.getMessage() for r in caplog.records if "Poplar's engine" in r.getMessage()]
    assert all(name in line for name in options)


@pytest.mark.parametrize(
    "options",
    [
        {"none.such": "1"},
        {"autoReport.al": "true"},
        {"debug.allowOutOfMemory": "maybe"},
        {"debug.readUnwritten": "one"},
    ],
)
def test_options_that_are_none(options: dict[str, str]) -> None:
    _, graph, x, _ = counting()
    with pytest.raises(poplar.poplar_error, match=next(iter(options))):
        poplar.Engine(graph, add(graph, x, 1), options)


def test_no_report_without_retained_information() -> None:
    _, graph, x, _ = counting()
    engine = poplar.Engine(graph, add(graph, x, 1), {"debug.retainDebugInformation": "false"})
    with pytest.raises(poplar.profiling_disabled, match="retainDebugInformation"):
        engine.report()


def test_reports_are_written(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    device, graph, x, _ = counting()
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    engine = poplar.Engine(graph, add(graph, x, 1), options)
    engine.load(device)
    engine.run()
    written = {path.name for path in tmp_path.glob("*/*")}
    assert {"report.json", "report.html", "program.txt"} <= written
    engine.printProfileSummary()
    assert "program_0" in capsys.readouterr().out


def test_left_out_by_name() -> None:
    _, graph, x, _ = counting()
    for name in ("serialize", "createReplicatedGraph", "addHostFunction"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(graph, name)()
    with pytest.raises(NotImplementedError, match="hostFunction"):
        graph.hostFunction("f")
    with pytest.raises(NotImplementedError, match="connectHostFunction"):
        poplar.Engine(graph, add(graph, x, 1)).connectHostFunction("f", lambda: None)
    for name in ("gcl", "popsparse", "popfloat", "VertexPerfEstimator", "HostFunction"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(poplar, name)
    with pytest.raises(NotImplementedError, match="debugger"):
        poplar.Engine(graph, add(graph, x, 1), {"debugger.port": "1"})


def test_callbacks_fill_and_read_transfers() -> None:
    device, graph, x, _ = counting()
    to = graph.addHostToDeviceFIFO("to", poplar.INT, 3)
    back = graph.addDeviceToHostFIFO("back", poplar.INT, 3)
    body = [program.Copy(to, x), add(graph, x, 5), program.Copy(x, back)]
    engine = loaded(device, graph, program.Repeat(3, program.Sequence(body)))
    given, got = iter(range(100)), []

    def fill(array: np.ndarray) -> None:
        array[:] = next(given)

    engine.connectStreamToCallback("to", fill)
    engine.connectStreamToCallback("back", 0, lambda array: got.append(array.tolist()))
    with pytest.raises(poplar.index_error, match="replica 1"):
        engine.connectStreamToCallback("back", 1, fill)
    engine.run()
    assert got == [[5] * 3, [6] * 3, [7] * 3]


def test_remote_buffers_keep_rows() -> None:
    device, graph, x, _ = counting()
    index = graph.addVariable(poplar.UNSIGNED_INT, [2], "index")
    pair = graph.addVariable(poplar.INT, [2, 3], "pair")
    for t in (index, pair):
        graph.setTileMapping(t, 1)
        graph.createHostWrite(t.name, t)
        graph.createHostRead(t.name, t)
    rows = graph.addRemoteBuffer("rows", poplar.INT, 3, 4)
    one = graph.addRemoteBuffer("one", poplar.INT, 3)
    get = program.Copy(rows, pair, index)
    put = program.Sequence(
        [program.Copy(one, x), add(graph, x, 10), program.Copy(x, rows, index[0])]
    )
    engine = loaded(device, graph, [get, put])
    table = np.arange(12).reshape(4, 3)
    for i, row in enumerate(table):
        engine.copyToRemoteBuffer(row, "rows", i)
    engine.copyToRemoteBuffer([7, 8, 9], "one")
    engine.writeTensor("index", [3, 1])
    engine.run(0)
    np.testing.assert_array_equal(engine.readTensor("pair"), table[[3, 1]])
    engine.run(1)
    np.testing.assert_array_equal(engine.copyFromRemoteBuffer("rows", repeatIndex=3), [17, 18, 19])
    into = np.zeros(3, np.int32)
    assert engine.copyFromRemoteBuffer("rows", into, 2) is into
    np.testing.assert_array_equal(into, table[2])
    report = engine.report(1)
    assert report.memory.remote_bytes.tolist() == [15 * 4]
    assert [step.kind for step in report.steps].count("remote") == 2
    assert report.memory.tile_categories["variables"][0, :3].tolist() == [0, 32, 13]


def test_rows_that_are_not_there() -> None:
    device, graph, x, _ = counting()
    index = graph.addVariable(poplar.INT, [1], "index")
    graph.setTileMapping(index, 0)
    graph.setInitialValue(index, 4)
    rows = graph.addRemoteBuffer("rows", poplar.INT, 3, 4)
    engine = loaded(device, graph, program.Copy(rows, x, index))
    with pytest.raises(poplar.index_error, match="row 4"):
        engine.copyToRemoteBuffer([1, 2, 3], "rows", 4)
    with pytest.raises(poplar.stream_connection_error, match="rows"):
        engine.copyToRemoteBuffer([1, 2, 3], "row")
    with pytest.raises(poplar.index_error, match="row 4 of remote buffer 'rows'") as found:
        engine.run()
    assert "test_engine.py" in str(found.value)
    assert "stream_connections" not in str(found.value)
    with pytest.raises(poplar.index_error, match="shapes"):
        program.Copy(rows, x.slice(0, 2), index)
    flag = graph.addVariable(poplar.BOOL, [1], "flag")
    with pytest.raises(poplar.type_error, match="UNSIGNED_INT"):
        program.Copy(rows, x, flag)


def test_virtual_graphs_number_their_tiles_from_0_on() -> None:
    device, graph = make_graph()
    half = graph.createVirtualGraph(100, 110)
    quarter = half.createVirtualGraph([3, 7])
    assert half.getTarget().getNumTiles() == 10
    a = half.addVariable(poplar.FLOAT, [640], "a")
    b = graph.addVariable(poplar.FLOAT, [4], "b")
    poputil.mapTensorLinearly(half, a)
    quarter.setTileMapping(b, 1)
    tiles = [i for i, intervals in enumerate(graph.getTileMapping(a)) if intervals]
    assert tiles == [*range(100, 110)]
    assert [len(each) for each in quarter.getTileMapping(b)] == [0, 1]
    assert graph.getTileMapping(b)[107] == [poplar.Interval(0, 4)]
    with pytest.raises(poplar.invalid_tile_mapping, match="tile 10"):
        half.setTileMapping(a, 10)
    with pytest.raises(poplar.invalid_tile_mapping):
        graph.createVirtualGraph(1470, 1473)
    graph.setInitialValue(b, 2)
    engine = loaded(device, half, program.Copy(b, a.slice(0, 4)))
    graph.createHostRead("a", a.slice(0, 4))
    engine.run()
    np.testing.assert_array_equal(engine.readTensor("a"), [2] * 4)


def test_bits_have_another_meaning() -> None:
    device, graph = make_graph()
    a = graph.addVariable(poplar.FLOAT, [4], "a")
    b = graph.addVariable(poplar.UNSIGNED_INT, [4], "b")
    c = graph.addVariable(poplar.INT, [8], "c")
    for t in (a, b, c):
        graph.setTileMapping(t, 0)
        graph.createHostRead(t.name, t)
    bits = np.array([0x3F800000, 0xC0000000, 0, 0x7F800000], np.uint32)
    graph.setInitialValue(a.reinterpret(poplar.UNSIGNED_INT), bits)
    both = poplar.concat([a.reinterpret(poplar.INT), b.reinterpret(poplar.INT)])
    graph.createHostRead("both", both)
    copies = [program.Copy(a.reinterpret(poplar.UNSIGNED_INT), b), program.Copy(both, c)]
    engine = loaded(device, graph, program.Sequence(copies))
    engine.run()
    np.testing.assert_array_equal(engine.readTensor("a"), [1, -2, 0, np.inf])
    np.testing.assert_array_equal(engine.readTensor("b"), bits)
    np.testing.assert_array_equal(engine.readTensor("both").view(np.uint32), [*bits, *bits])
    np.testing.assert_array_equal(engine.readTensor("c").view(np.uint32), [*bits, *bits])
    with pytest.raises(poplar.type_error, match="HALF"):
        a.reinterpret(poplar.HALF)
