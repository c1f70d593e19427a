"""Poplar's sixth tutorial: a product of matrix and vector, whose columns are split."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import program
from tests.ipujax.poplar.test_tutorials import DotProductVertex


@poplar.codelet
def ReduceVertex(in_: poplar.Input[poplar.Vector[poplar.FLOAT]], out: poplar.Output[poplar.FLOAT]):
    return {"out": in_.sum()}


def estimate(target: poplar.Target, rows: int, cols: int, split: int) -> int:
    """The tutorial's estimate of cycles: two compute sets, and an exchange before each."""
    tiles, workers = target.getNumTiles(), target.getNumWorkerContexts()
    bytes_per_cycle, section = target.getExchangeBytesPerCycle(), -(-cols // split)
    vertices = max(-(-rows * split // tiles), 1)
    reducing = max(-(-rows // tiles), 1)
    rounds, reducing_rounds = -(-vertices // workers), -(-reducing // workers)
    return (
        rounds * workers * (5 + (section + 1) // 2)
        + int(-(-vertices // rows) * section * 4 // bytes_per_cycle)
        + reducing_rounds * workers * (5 + (split + 1) // 2)
        + int(reducing * split * 4 // bytes_per_cycle)
    )


@pytest.mark.parametrize(("version", "worst"), [("ipu1", 64_373), ("ipu2", 53_807)])
def test_worst_split_costs_what_the_tutorials_test_expects(version: str, worst: int) -> None:
    target = poplar.IPUModel(version).createDevice().getTarget()
    assert max(estimate(target, 10_000, 1_000, split) for split in range(1, 1_000)) == worst


def build(graph: poplar.Graph, rows: int, cols: int, split: int) -> dict[str, Any]:
    matrix = graph.addVariable(poplar.FLOAT, [rows, cols], "matrix")
    vector = graph.addVariable(poplar.FLOAT, [cols], "vector")
    result = graph.addVariable(poplar.FLOAT, [rows], "result")
    partials = graph.addVariable(poplar.FLOAT, [rows, split], "partials")
    tiles = graph.getTarget().getNumTiles()
    for i in range(cols):
        graph.setTileMapping(vector[i], i * tiles // cols)
    multiply, reduce = graph.addComputeSet("multiply"), graph.addComputeSet("reduce")
    for i in range(split):
        begin, end = i * cols // split, (i + 1) * cols // split
        for row in range(rows):
            tile = (i * rows + row) * tiles // (split * rows)
            part, out = matrix[row].slice(begin, end), partials[row][i]
            fields = {"a": part, "b": vector.slice(begin, end), "out": out}
            v = graph.addVertex(multiply, DotProductVertex, fields)
            for each in (v, part, out):
                graph.setTileMapping(each, tile)
            graph.setPerfEstimate(v, 5 + (end - begin + 1) // 2)
    for row in range(rows):
        v = graph.addVertex(reduce, ReduceVertex, {"in": partials[row], "out": result[row]})
        for each in (v, result[row]):
            graph.setTileMapping(each, row * tiles // rows)
        graph.setPerfEstimate(v, 5 + (split + 1) // 2)
    run = program.Sequence([program.Execute(multiply), program.Execute(reduce)])
    return {"matrix": matrix, "vector": vector, "result": result, "run": run}


@pytest.mark.parametrize(("rows", "cols"), [(400, 90), (37, 1000)])
def test_product_with_split_columns(rows: int, cols: int) -> None:
    device = poplar.IPUModel().createDevice()
    graph = poplar.Graph(device)
    target = graph.getTarget()
    costs = [estimate(target, rows, cols, split) for split in range(1, cols)]
    split = int(np.argmin(costs)) + 1
    parts = build(graph, rows, cols, split)
    to_v = graph.addHostToDeviceFIFO("vector", poplar.FLOAT, cols)
    to_m = graph.addHostToDeviceFIFO("matrix", poplar.FLOAT, rows * cols)
    back = graph.addDeviceToHostFIFO("out", poplar.FLOAT, rows)
    steps = [
        program.Copy(to_v, parts["vector"]),
        program.Copy(to_m, parts["matrix"].flatten()),
        parts["run"],
        program.Copy(parts["result"], back),
    ]
    engine = poplar.Engine(graph, program.Sequence(steps))
    engine.load(device)
    vector = np.arange(cols, dtype=np.float32)
    matrix = np.outer(np.arange(rows), vector).astype(np.float32)
    result = np.zeros(rows, np.float32)
    for handle, array in (("vector", vector), ("matrix", matrix), ("out", result)):
        engine.connectStream(handle, array)
    engine.run()
    np.testing.assert_allclose(result, matrix @ vector, rtol=1e-5)
    report = engine.report()
    multiply, reduce = report.compute_sets
    per_tile = -(-rows * split // 1472)
    assert multiply.vertices.max() == per_tile
    rounds = -(-per_tile // 6)
    assert multiply.tile_cycles.max() == 6 * rounds * (5 + (-(-cols // split) + 1) // 2)
    assert reduce.tile_cycles.max() == 6 * (5 + (split + 1) // 2)
    # Only the vector comes from elsewhere, and results stay where they are made.
    needed = report.exchanges[0]
    assert needed.received_bytes.max() <= 4 * 2 * -(-cols // split)
    assert [e.name for e in report.exchanges] == ["multiply", "reduce"]
    text = io.StringIO()
    engine.printProfileSummary(text, {"showExecutionSteps": "true"})
    assert "ipu_superstep/multiply" in text.getvalue()
