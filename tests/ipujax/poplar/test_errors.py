"""Mistakes in graphs: what is said, and when."""

# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import program
from tests.ipujax.poplar.test_tutorials import SumVertex, make_graph


@poplar.codelet(cycles=lambda y: y.size)
def Double(
    x: poplar.Input[poplar.Vector[poplar.FLOAT]], y: poplar.Output[poplar.Vector[poplar.FLOAT]]
):
    return {"y": 2 * x[: y.size]}


def summing(size: int = 4) -> tuple[poplar.Graph, poplar.Tensor, poplar.Tensor, poplar.ComputeSet]:
    _, graph = make_graph()
    x = graph.addVariable(poplar.FLOAT, [size], "x")
    y = graph.addVariable(poplar.FLOAT, [2], "y")
    return graph, x, y, graph.addComputeSet("sums")


def test_said_at_once() -> None:
    graph, x, y, cs = summing()
    with pytest.raises(poplar.invalid_tile_mapping, match="tile 1472"):
        graph.setTileMapping(x, 1472)
    for index in (4, -1):
        with pytest.raises(poplar.index_error, match="'x'"):
            x[index]
    with pytest.raises(poplar.index_error, match="shapes differ") as found:
        program.Copy(x, y)
    assert "test_errors.py" in str(found.value)
    vertex = graph.addVertex(cs, SumVertex)
    with pytest.raises(poplar.unknown_field, match="in, out"):
        graph.connect(vertex["inn"], x)
    with pytest.raises(poplar.type_error, match="INT"):
        graph.connect(vertex["in"], graph.addVariable(poplar.INT, [4], "i"))
    with pytest.raises(poplar.type_error, match="scalar"):
        graph.connect(vertex["out"], x)
    with pytest.raises(poplar.unknown_vertex_type, match="SumVertex"):
        graph.addVertex(cs, "NoVertex")
    with pytest.raises(poplar.graph_program_compilation_error, match="No such file"):
        graph.addCodelets("dot.cpp")


def test_said_by_the_engine() -> None:
    graph, x, y, cs = summing()
    run = program.Execute(cs)
    vertex = graph.addVertex(cs, SumVertex, {"in": x})
    with pytest.raises(poplar.invalid_tile_mapping, match="vertex 0"):
        poplar.Engine(graph, run)
    graph.setTileMapping(vertex, 3)
    with pytest.raises(poplar.graph_connection_error, match="'out'"):
        poplar.Engine(graph, run)
    graph.connect(vertex["out"], y[0])
    with pytest.raises(poplar.invalid_tile_mapping, match="element 0 of 'x'"):
        poplar.Engine(graph, run)
    for tensor in (x, y):
        graph.setTileMapping(tensor, 0)
    poplar.Engine(graph, run)
    graph.setTileMapping(graph.addVertex(cs, SumVertex, {"in": y, "out": y[1]}), 5)
    with pytest.raises(poplar.graph_program_compilation_error, match="element 0 of 'y'"):
        poplar.Engine(graph, run)
    one = graph.addComputeSet("one")
    vertex = graph.addVertex(one, Double, {"x": x, "y": y[0].reshape([1]).broadcast(2, 0)})
    graph.setTileMapping(vertex, 4)
    with pytest.raises(
        poplar.graph_program_compilation_error, match="tile 4 writes element 0 of 'y' in two places"
    ):
        poplar.Engine(graph, program.Execute(one))
    body = program.Sequence()
    body.add(program.Call(graph.addFunction(body)))
    with pytest.raises(poplar.graph_recursion_error):
        poplar.Engine(graph, body)


def test_said_by_a_run() -> None:
    graph, x, y, cs = summing()
    vertex = graph.addVertex(cs, SumVertex, {"in": x, "out": y[0]})
    for each in (x, y, vertex):
        graph.setTileMapping(each, 0)
    graph.createHostWrite("x", x)
    graph.createHostRead("y0", y[0])
    graph.createHostRead("y", y)
    device = poplar.Device(graph.getTarget())
    engine = poplar.Engine(graph, program.Execute(cs))
    with pytest.raises(poplar.control_program_error, match="not loaded"):
        engine.run()
    engine.load(device)
    with pytest.raises(poplar.control_program_error, match="element 0 of 'x'"):
        engine.run()
    engine.writeTensor("x", np.ones(4))
    engine.run()
    assert engine.readTensor("y0") == 4
    with pytest.raises(poplar.control_program_error, match="element 1 of 'y'"):
        engine.readTensor("y")
    stream = graph.addHostToDeviceFIFO("in", poplar.FLOAT, 4)
    engine = poplar.Engine(graph, program.Copy(stream, x))
    engine.load(device)
    with pytest.raises(poplar.stream_connection_error, match="'in' is not connected"):
        engine.run()
