"""Calls of codelets in C++: what files may call them with, and several threads."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax import poplar
from ipujax.driver import native_code
from ipujax.poplar import program
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph

HEAD = "#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"

ALL_KINDS = """
class AllKinds : public Vertex {
public:
  Vector<Input<Vector<float>>> rows;
  InOut<Vector<int>> counts;
  Output<float> sum;
  unsigned step = 2;
  bool compute() {
    float total = 0;
    for (auto &row : rows)
      for (float x : row) total += x;
    for (int &count : counts) count += step;
    *sum = total;
    return true;
  }
};
"""

f32, i32, u8 = np.float32, np.int32, np.uint8
OPERANDS = [
    np.ones((3, 5), f32),
    np.array([2, 3], i32),
    np.zeros((3, 4), i32),
    np.ones(3, f32),
    np.frombuffer(np.full(3, 7, np.uint32).tobytes(), u8).reshape(3, 4),
]
"""Three vertices: rows of 2 and 3 elements, their sizes, four counts, a sum, the plain fields."""

RESULTS = [((3, 4), i32), ((3,), f32), ((3, 4), u8)]
ATTRIBUTES: dict[str, Any] = {"group": np.int64(0), "label": "vertices", "words": np.int64(-1)}


def with_operand(place: int, value: Any) -> dict[str, Any]:
    return {"operands": [*OPERANDS[:place], value, *OPERANDS[place + 1 :]]}


def with_result(place: int, shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    return {"results": [*RESULTS[:place], (shape, dtype), *RESULTS[place + 1 :]]}


HOSTILE = {
    "no operands": {"operands": []},
    "too few operands": {"operands": OPERANDS[:3]},
    "too many operands": {"operands": [*OPERANDS, OPERANDS[0]]},
    "too few results": {"results": RESULTS[:1]},
    "too many results": {"results": RESULTS * 2},
    "rows beyond the end": with_operand(1, np.array([10**6, 3], i32)),
    "rows of negative sizes": with_operand(1, np.array([-(2**31), 2**31 - 1], i32)),
    "rows that end early": with_operand(1, np.array([1, 1], i32)),
    "rows without columns": with_operand(1, np.zeros((10**6, 0), i32)),
    "rows in another type": with_operand(1, np.array([2, 3], f32)),
    "a narrower type": with_operand(0, np.ones((3, 5), np.float16)),
    "no dimensions": with_operand(0, f32(1)),
    "three dimensions": with_operand(0, np.ones((3, 5, 1), f32)),
    "fewer vertices": with_operand(0, np.ones((2, 5), f32)),
    "no vertices": with_operand(0, np.ones((0, 5), f32)),
    "a vector for a scalar": with_operand(3, np.ones((3, 2), f32)),
    "short plain fields": with_operand(4, np.zeros((3, 3), u8)),
    "long plain fields": with_operand(4, np.zeros((3, 5), u8)),
    "a shorter result": with_result(0, (3, 3), i32),
    "a result of fewer vertices": with_result(1, (2,), f32),
    "a result in another type": with_result(1, (3,), i32),
    "fewer results of plain fields": with_result(2, (3, 2), u8),
    "results of more vertices": {"results": [((7, *s[1:]), dtype) for s, dtype in RESULTS]},
    "no attributes": {"attributes": {}},
    "a narrow number": {"attributes": {**ATTRIBUTES, "group": np.int32(0)}},
    "a text as number": {"attributes": {**ATTRIBUTES, "group": "0"}},
    "a number as text": {"attributes": {**ATTRIBUTES, "label": np.int64(0)}},
    "an attribute more": {"attributes": {**ATTRIBUTES, "more": np.int64(0)}},
}


@functools.cache
def compile_target() -> str:
    """Compiles the codelet, and returns the name by which programs call it."""
    graph = make_graph()
    graph.addCodelets(io.StringIO(HEAD + ALL_KINDS))
    native = graph.addVertex(graph.addComputeSet("cs"), "AllKinds").codelet.native
    assert native is not None
    return native.target


def load_and_run(
    folder: Path,
    operands: Sequence[Any] = OPERANDS,
    results: Sequence[tuple[tuple[int, ...], Any]] = RESULTS,
    attributes: Mapping[str, Any] = ATTRIBUTES,
) -> list[np.ndarray]:
    """Writes a file that calls the codelet, as anybody could, and runs it."""
    target, shapes = compile_target(), [jax.ShapeDtypeStruct(*each) for each in results]
    assert native_code.is_target(target)

    def call(*arrays: jax.Array) -> list[jax.Array]:
        return [*jax.ffi.ffi_call(target, shapes)(*arrays, **attributes)]

    ipu.compile(call).lower(*operands).compile().save(folder / "program")
    return [np.asarray(each) for each in ipu.load_executable(folder / "program")(*operands)]


def test_a_file_may_call_a_codelet_with_what_its_fields_are(tmp_path: Path) -> None:
    counts, sums, steps = load_and_run(tmp_path)
    np.testing.assert_array_equal(counts, np.full((3, 4), 7))
    np.testing.assert_array_equal(sums, [5, 5, 5])
    np.testing.assert_array_equal(steps.view(np.uint32), [[7], [7], [7]])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.sampled(5)
def test_a_file_that_calls_a_codelet_with_anything_else_is_refused(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="other operands than its fields"):
        load_and_run(tmp_path, **HOSTILE[name])


def test_a_file_that_calls_what_a_library_has_not_is_refused() -> None:
    target = compile_target()
    native_code.require_target(target)
    for foreign in (target.replace("codelets_0", "codelets_99"), f"ipujax_{'0' * 64}.codelets_0"):
        assert native_code.is_target(foreign)
        with pytest.raises(ipu.errors.ExecutableError, match="not compiled here"):
            native_code.require_target(foreign)


SLOW = """
class Slow : public Vertex {
public:
  Input<int> n;
  Output<float> y;
  Output<Vector<float>> z;
  bool compute() {
    float x = 1;
    for (int i = 0; i < *n; ++i) x = ipu::sqrt(x + i);
    *y = x;
    if (*n % 1000 == 1) z.data()[-1] = x;
    return true;
  }
};
"""


def make_slow_engine(iterations: np.ndarray) -> poplar.Engine:
    """An engine with a vertex for each number of iterations, on a tile of its own."""
    graph = make_graph()
    graph.addCodelets(io.StringIO(HEAD + SLOW))
    n, y = add_tensor(graph, iterations, "n"), add_tensor(graph, 0 * iterations.astype(f32), "y")
    z = add_tensor(graph, np.zeros((len(iterations), 2), f32), "z")
    cs = graph.addComputeSet("cs")
    for i in range(len(iterations)):
        vertex = graph.addVertex(cs, "Slow", {"n": n[i], "y": y[i], "z": z[i]})
        graph.setTileMapping(vertex, i)
    graph.createHostRead("y", y)
    return make_engine(graph, program.Execute(cs))


def test_vertices_that_take_long_run_on_several_threads_with_the_same_numbers() -> None:
    iterations = np.random.default_rng(0).integers(2, 900, 500).astype(i32)
    engine = make_slow_engine(iterations)
    engine.run(0)
    wanted = np.ones(500, f32)
    for i in range(iterations.max()):
        wanted = np.where(i < iterations, np.sqrt(wanted + f32(i)), wanted)
    np.testing.assert_allclose(engine.readTensor("y"), wanted, rtol=1e-6)


def test_of_several_vertices_that_go_wrong_the_first_is_named() -> None:
    iterations = np.full(500, 3000, i32)
    iterations[[417, 121, 300]] += 1
    for _ in range(3):
        with pytest.raises(poplar.graph_program_compilation_error, match=r"vertex 121 .*tile 121 "):
            make_slow_engine(iterations).run(0)


def test_within_a_function_the_error_names_codelet_compute_set_field_and_vertex() -> None:
    def build(graph: poplar.Graph, prog: program.Sequence, n: poplar.Tensor) -> poplar.Tensor:
        graph.addCodelets(io.StringIO(HEAD + SLOW))
        y = add_tensor(graph, np.zeros(4, f32), "y", tile=0)
        cs = graph.addComputeSet("slow")
        for i in range(4):
            z = add_tensor(graph, np.zeros(2, f32), f"z{i}", tile=0)
            vertex = graph.addVertex(cs, "Slow", {"n": n[i], "y": y[i], "z": z})
            graph.setTileMapping(vertex, i)
        prog.add(program.Execute(cs))
        return y

    compiled = ipu.compile(lambda n: poplar.call(build, n))
    with pytest.raises(
        jax.errors.JaxRuntimeError,
        match=r"codelet 'Slow' in 'slow' writes outside of field '[yz]' \(vertex 2 of group 0\)",
    ):
        compiled(np.array([5, 5, 1001, 5], i32))


def test_a_codelet_may_have_more_fields_than_a_number_has_bits() -> None:
    fields = "".join(f"Input<float> x{i}; " for i in range(70))
    text = f"class Many : public Vertex {{ public: {fields} Output<float> sum;"
    text += " bool compute() { *sum = *x0 + *x63 + *x69; return true; } };"
    graph = make_graph()
    graph.addCodelets(io.StringIO(HEAD + text))
    inputs = add_tensor(graph, np.arange(70, dtype=f32), "inputs", 0)
    total = add_tensor(graph, np.zeros(1, f32), "total", 0)
    graph.createHostRead("total", total)
    compute_set = graph.addComputeSet("cs")
    connections = {f"x{i}": inputs[i] for i in range(70)}
    vertex = graph.addVertex(compute_set, "Many", {**connections, "sum": total[0]})
    graph.setTileMapping(vertex, 0)
    engine = make_engine(graph, program.Execute(compute_set))
    engine.run(0)
    assert engine.readTensor("total", np.zeros(1, f32)) == [132]
