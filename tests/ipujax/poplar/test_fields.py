"""Fields that are vectors of fields, in C++ and JAX, and plain vectors."""

# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

from __future__ import annotations

import io
from typing import Any

import jax
import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import program
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, run
from tests.ipujax.poplar.building_graphs import make_graph as make_plain_graph
from tests.ipujax.poplar.test_cpp_codelets import HEAD, make_graph

ROWS = """
class ScaleRows : public Vertex {
public:
  Vector<Input<Vector<float>>> rows;
  Vector<Input<float>> factors;
  Vector<Output<Vector<float>>> out;
  bool compute() {
    for (unsigned i = 0; i < rows.size(); ++i)
      for (unsigned j = 0; j < rows[i].size(); ++j) out[i][j] = factors[i] * rows[i][j];
    return true;
  }
};
"""


@poplar.codelet(cycles=lambda rows, out: 7 + sum(row.size for row in rows) + 100 * len(out))
def ScaleRowsInJax(
    rows: poplar.Vector[poplar.Input[poplar.Vector[poplar.FLOAT]]],
    factors: poplar.Vector[poplar.Input[poplar.FLOAT]],
    out: poplar.Vector[poplar.Output[poplar.Vector[poplar.FLOAT]]],
):
    assert [each.shape for each in out] == [row.shape for row in rows]
    return {"out": [factor * row for factor, row in zip(factors, rows, strict=True)]}


@pytest.mark.parametrize("language", ["C++", "JAX"])
def test_rows_are_connected_together_or_one_by_one(language: str) -> None:
    graph = make_graph(ROWS) if language == "C++" else make_plain_graph()
    kind: Any = "ScaleRows" if language == "C++" else ScaleRowsInJax
    cs = graph.addComputeSet("cs")
    values = [np.arange(n, dtype=np.float32) + n for n in (3, 1, 5)]
    rows = [add_tensor(graph, each, f"row{each.size}", 0) for each in values]
    factors = add_tensor(graph, np.array([2, 3, 4], np.float32), "factors", 1)
    read: list[poplar.Tensor] = []
    for number in range(2):
        out = [add_tensor(graph, 0 * each, f"out{number}{each.size}", 2) for each in values]
        if number:
            vertex = graph.addVertex(cs, kind, {"rows": rows, "factors": factors, "out": out})
        else:
            vertex = graph.addVertex(cs, kind, {"factors": [factors[i] for i in range(3)]})
            for field, tensors in (("rows", rows), ("out", out)):
                graph.setFieldSize(vertex[field], 3)
                for i, tensor in reversed([*enumerate(tensors)]):
                    graph.connect(vertex[field][i], tensor)
            assert vertex["rows"].size() == 3
        graph.setTileMapping(vertex, number)
        read += out
    found = run(graph, program.Sequence([program.Execute(cs)]), *read)
    wanted_rows = [f * v for f, v in zip((2, 3, 4), values, strict=True)]
    for got, wanted in zip(found, 2 * wanted_rows, strict=True):
        np.testing.assert_array_equal(got, wanted)
    if language == "JAX":
        report = make_engine(graph, cs).report()
        assert report.compute_sets[0].tile_cycles[:2].tolist() == [6 * (7 + 9 + 300)] * 2


def test_rows_that_do_not_fit_are_refused() -> None:
    graph = make_graph(ROWS)
    cs = graph.addComputeSet("cs")
    x = add_tensor(graph, np.zeros((3, 2), np.float32), "x", 0)
    vertex = graph.addVertex(cs, "ScaleRows")
    with pytest.raises(poplar.graph_connection_error, match=r"(?s)'factors'.*'x'"):
        graph.connect(vertex["factors"], x)
    with pytest.raises(poplar.type_error, match=r"(?s)'factors'.*scalar.*2 elements"):
        graph.connect(vertex["factors"], [x[0], x[1], x[2]])
    with pytest.raises(poplar.graph_connection_error, match=r"(?s)'rows'.*2 dimensions"):
        graph.connect(vertex["rows"], x[0])
    with pytest.raises(poplar.index_error, match="setFieldSize"):
        graph.connect(vertex["rows"][0], x[0])
    graph.setFieldSize(vertex["rows"], 2)
    graph.connect(vertex["rows"][1], x[0])
    graph.connect(vertex["out"], x)
    graph.connect(vertex["factors"], [x[0][0], x[0][1]])
    graph.setTileMapping(vertex, 0)
    with pytest.raises(poplar.graph_connection_error, match=r"(?s)'rows'.*not connected"):
        poplar.Engine(graph, program.Execute(cs))

    @poplar.codelet
    def Wrong(rows: poplar.Vector[poplar.InOut[poplar.Vector[poplar.FLOAT]]]):
        return {"rows": rows[:1]}

    cs = graph.addComputeSet("wrong")
    graph.setTileMapping(graph.addVertex(cs, Wrong, {"rows": x}), 0)
    with pytest.raises(poplar.type_error, match="'rows' of codelet 'Wrong'"):
        make_engine(graph, cs).run()


TABLE = """
class Look : public Vertex {
public:
  Input<int> at;
  Output<float> y;
  Vector<float> table;
  int uses = 0;
  bool compute() {
    *y = table[*at] + table.size();
    table[*at] += 1;
    uses += 1;
    return true;
  }
};
"""


def test_plain_vectors_have_sizes_and_values_and_keep_them() -> None:
    graph = make_graph(TABLE)
    cs = graph.addComputeSet("cs")
    at = add_tensor(graph, np.array([1, 2], np.int32), "at", 0)
    y = add_tensor(graph, np.zeros(2, np.float32), "y", 0)
    graph.createHostRead("y", y)
    vertices = [graph.addVertex(cs, "Look", {"at": at[i], "y": y[i]}) for i in range(2)]
    for tile, vertex in enumerate(vertices):
        graph.setTileMapping(vertex, 4 + tile)
    graph.setInitialValue(vertices[0]["table"], [10, 20])
    with pytest.raises(poplar.graph_connection_error, match=r"(?s)'table'.*setFieldSize"):
        poplar.Engine(graph, program.Execute(cs))
    graph.setFieldSize(vertices[1]["table"], 3)
    engines = make_engine(graph, cs), make_engine(graph, cs)
    for engine in engines:
        for run_number in range(3):
            engine.run()
            wanted = [22 + run_number, 3 + run_number]
            np.testing.assert_array_equal(engine.readTensor("y"), wanted)
    states = engines[0].report().memory.tile_categories["vertex_state"][0, 4:6]
    others = 100  # the model's bytes of a vertex without plain fields
    assert states.tolist() == [2 * 4 + 4 + others, 3 * 4 + 4 + others]
    with pytest.raises(poplar.type_error, match=r"'table' takes 3 elements"):
        graph.setInitialValue(vertices[1]["table"], [1, 2])
    with pytest.raises(poplar.index_error, match=r"(?s)'y'.*takes no size"):
        graph.setFieldSize(vertices[1]["y"], 2)


def test_fields_say_what_they_are() -> None:
    lines = make_graph(ROWS + TABLE).codelets.descriptions()
    assert "  rows: Vector<Input<Vector<FLOAT>>>" in lines
    assert "  factors: Vector<Input<FLOAT>>" in lines
    assert "  table: Vector<FLOAT>" in lines


def test_batches_of_codelets_in_cpp_are_calls_one_after_the_other() -> None:
    def look(graph: poplar.Graph, prog: program.Sequence, at: poplar.Tensor) -> poplar.Tensor:
        graph.addCodelets(io.StringIO(HEAD + TABLE))
        y = graph.addVariable(poplar.FLOAT, [], "y")
        cs = graph.addComputeSet("cs")
        vertex = graph.addVertex(cs, "Look", {"at": at, "y": y})
        graph.setInitialValue(vertex["table"], [10, 20, 30])
        for each in (at, y, vertex):
            graph.setTileMapping(each, 3)
        prog.add(program.Execute(cs))
        return y

    found = jax.vmap(lambda at: poplar.call(look, at))(np.array([2, 0, 1], np.int32))
    np.testing.assert_array_equal(found, [33, 13, 23])
