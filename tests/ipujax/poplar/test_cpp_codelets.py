"""Codelets in C++: fields of all kinds, state, templates, cycles, and what is refused."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax import poplar
from ipujax.poplar import poputil, program

HEAD = "#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"


def make_graph(text: str, **keywords: Any) -> poplar.Graph:
    graph = poplar.Graph(poplar.IPUModel().createDevice().getTarget())
    graph.addCodelets(io.StringIO(HEAD + text), **keywords)
    return graph


def add_tensor(graph: poplar.Graph, values: Any, name: str, tile: int = 0) -> poplar.Tensor:
    values = np.asarray(values)
    types = {each.dtype: each for each in (poplar.FLOAT, poplar.HALF, poplar.INT, poplar.BOOL)}
    tensor = graph.addVariable(types[values.dtype], values.shape, name)
    graph.setTileMapping(tensor, tile)
    graph.setInitialValue(tensor, values)
    graph.createHostRead(name, tensor)
    return tensor


def make_engine(graph: poplar.Graph, what: Any) -> poplar.Engine:
    what = program.Execute(what) if isinstance(what, poplar.ComputeSet) else what
    engine = poplar.Engine(graph, what)
    engine.load(poplar.IPUModel().createDevice())
    return engine


def run_vertex(graph: poplar.Graph, name: str, fields: dict[str, Any]) -> poplar.Engine:
    """Runs one vertex on tile 0."""
    cs = graph.addComputeSet("cs")
    graph.setTileMapping(graph.addVertex(cs, name, fields), 0)
    engine = make_engine(graph, cs)
    engine.run(0)
    return engine


f32 = np.float32

SUM = """
class SumVertex : public Vertex {
public:
  Input<Vector<float>> in;
  Output<float> out;
  bool compute() {
    *out = 0;
    for (const auto &v : in) {
      *out += v;
    }
    return true;
  }
};
"""


def test_a_codelet_in_its_host_programs_file_reads_vectors_by_arrow() -> None:
    text = """
    #ifdef __POPC__
    class Increment : public Vertex {
    public:
      Input<Vector<float>> x;
      Output<Vector<float>> y;
      Input<VectorList<float, VectorListLayout::DELTAN>> rows;
      bool compute() {
        for (unsigned i = 0; i < x->size(); i++) {
          y[i] = x[i] + rows->size();
        }
        return y->size() == x->size();
      }
    };
    #else
    #include <poplar/Engine.hpp>
    #endif
    """
    graph = make_graph(text)
    x, rows = add_tensor(graph, f32([1, 2]), "x"), add_tensor(graph, np.ones((3, 2), f32), "rows")
    y = add_tensor(graph, f32([0, 0]), "y")
    engine = run_vertex(graph, "Increment", {"x": x, "y": y, "rows": rows})
    np.testing.assert_array_equal(engine.readTensor("y"), [4, 5])


def test_tutorial_3_sums_slices_on_four_tiles(tmp_path: Path) -> None:
    path = tmp_path / "tut3_codelets.cpp"
    path.write_text(HEAD + SUM)
    device = poplar.IPUModel().createDevice()
    graph = poplar.Graph(device.getTarget())
    graph.addCodelets(str(path))
    v1 = graph.addVariable(poplar.FLOAT, [4], "v1")
    v2 = graph.addVariable(poplar.FLOAT, [4], "v2")
    cs = graph.addComputeSet("computeSet")
    for i in range(4):
        for t in (v1[i], v2[i]):
            graph.setTileMapping(t, i)
        vertex = graph.addVertex(cs, "SumVertex")
        graph.connect(vertex["in"], v1.slice(i, 4))
        graph.connect(vertex["out"], v2[i])
        graph.setTileMapping(vertex, i)
        graph.setPerfEstimate(vertex, 20)
    c1 = graph.addConstant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
    graph.setTileMapping(c1, 0)
    graph.createHostRead("v2", v2)
    engine = poplar.Engine(graph, [program.Copy(c1, v1), program.Execute(cs)])
    engine.load(device)
    engine.run(0)
    engine.run(1)
    np.testing.assert_array_equal(engine.readTensor("v2"), [7, 6, 4.5, 2.5])
    assert engine.report(1).compute_sets[0].tile_cycles[:5].tolist() == [120] * 4 + [0]


def test_as_many_vertices_as_tiles_are_one_call() -> None:
    graph = make_graph(SUM)
    x = np.random.default_rng(0).integers(0, 9, (1472, 8)).astype(f32)
    a, out = add_tensor(graph, x, "a"), add_tensor(graph, np.zeros(1472, f32), "out")
    poputil.mapTensorLinearly(graph, a)
    cs = graph.addComputeSet("cs")
    for i in range(1472):
        graph.setTileMapping(graph.addVertex(cs, "SumVertex", {"in": a[i], "out": out[i]}), i)
    engine = make_engine(graph, cs)
    engine.run(0)
    np.testing.assert_array_equal(engine.readTensor("out"), x.sum(1))
    groups = [*engine._lowering.steps.all_groups()]  # pyright: ignore[reportPrivateUsage]
    assert [len(group.vertices) for group in groups] == [1472]


COUNTER = """
class Counter : public Vertex {
public:
  Output<int> out;
  int step = 2;
  unsigned char small[2];
  double large;
  bool compute() {
    step += 1;
    small[1] += 250;
    large *= 2;
    *out = step * 1000 + small[1] + int(large);
    return true;
  }
};
"""


def test_plain_fields_are_kept_from_run_to_run_by_each_vertex_and_engine() -> None:
    graph = make_graph(COUNTER)
    out = add_tensor(graph, np.zeros(2, np.int32), "out")
    cs = graph.addComputeSet("cs")
    for i in range(2):
        vertex = graph.addVertex(cs, "Counter", {"out": out[i]})
        graph.setTileMapping(vertex, 3 + i)
        graph.setInitialValue(vertex["large"], i + 1)
        if i:
            graph.setInitialValue(vertex["step"], 40)
            graph.setInitialValue(vertex["small"], [1, 2])
    for _ in range(2):
        engine = make_engine(graph, cs)
        step, small, large = np.array([2, 40]), np.array([0, 2]), np.array([1, 2])
        for _ in range(3):
            engine.run(0)
            step, small, large = step + 1, (small + 250) % 256, 2 * large
            np.testing.assert_array_equal(engine.readTensor("out"), step * 1000 + small + large)
    categories = make_engine(graph, cs).report().memory.tile_categories
    others = 100  # the model's bytes of a vertex without plain fields
    wanted = [0, 0, 0, 14 + others, 14 + others, 0]
    assert categories["vertex_state"][0, :6].tolist() == wanted
    assert categories["variables"].sum() == 8


def test_templates_are_made_by_name_in_namespaces_and_for_half() -> None:
    graph = make_graph(
        """
        namespace ns {
        template <typename T, unsigned N> class Scale : public Vertex {
        public:
          Input<Vector<T, VectorLayout::ONE_PTR, 8>> x;
          Output<Vector<T>> y;
          bool compute() {
            for (unsigned i = 0; i < y.size(); ++i) y[i] = x[i] * T(N);
            return true;
          }
        };
        template class Scale<float, 3>;
        }
        """
    )
    assert graph.codelets.names() == ["ns::Scale<float,3>", "ns::Scale<...>"]
    for dtype, name, factor in (
        (f32, "ns::Scale<float, 3>", 3),
        (np.float16, "ns::Scale<half,7>", 7),
    ):
        values = np.linspace(-3, 5, 11).astype(dtype)
        title = np.dtype(dtype).name
        x, y = add_tensor(graph, values, f"x{title}"), add_tensor(graph, 0 * values, f"y{title}")
        engine = run_vertex(graph, name, {"x": x, "y": y})
        np.testing.assert_array_equal(engine.readTensor(f"y{title}"), values * dtype(factor))
    assert poputil.templateVertex("ns::Scale", poplar.HALF, 7) == "ns::Scale<half,7>"


def test_vectors_of_vectors_have_rows_of_their_own() -> None:
    graph = make_graph(
        """
        class RowSums : public Vertex {
        public:
          Vector<Input<Vector<float>>> rows;
          Vector<InOut<Vector<int>>> counts;
          Output<Vector<float>> sums;
          bool compute() {
            for (unsigned i = 0; i < rows.size(); ++i) {
              sums[i] = 0;
              for (float x : rows[i]) sums[i] += x;
              for (int &n : counts[i]) n += rows[i].size();
            }
            return true;
          }
        };
        """
    )
    rows = [add_tensor(graph, np.arange(n, dtype=f32), f"r{n}", n) for n in (3, 1, 5)]
    counts = add_tensor(graph, np.arange(6, dtype=np.int32).reshape(3, 2), "counts")
    sums = add_tensor(graph, np.zeros(3, f32), "sums")
    engine = run_vertex(graph, "RowSums", {"rows": rows, "counts": counts, "sums": sums})
    np.testing.assert_array_equal(engine.readTensor("sums"), [3, 0, 10])
    np.testing.assert_array_equal(engine.readTensor("counts"), [[3, 4], [3, 4], [9, 10]])


def test_a_slice_without_elements_has_size_zero() -> None:
    graph = make_graph(SUM)
    x, y = add_tensor(graph, np.zeros(0, f32), "x"), add_tensor(graph, f32(5), "y")
    engine = run_vertex(graph, "SumVertex", {"in": x, "out": y})
    assert engine.readTensor("y") == 0


def test_an_output_keeps_what_compute_does_not_write() -> None:
    graph = make_graph(
        """
        struct First : public Vertex {
          Output<Vector<float>> out;
          bool compute() { out[0] = 9; return true; }
        };
        """
    )
    add = add_tensor(graph, np.array([1, 2, 3], f32), "out")
    engine = run_vertex(graph, "First", {"out": add})
    np.testing.assert_array_equal(engine.readTensor("out"), [9, 2, 3])


def test_the_six_workers_of_a_multi_vertex_share_its_elements() -> None:
    graph = make_graph(
        """
        class Square : public MultiVertex {
        public:
          InOut<Vector<float>> x;
          bool compute(unsigned worker) {
            for (unsigned i = worker; i < x.size(); i += numWorkers()) x[i] *= x[i];
            return true;
          }
        };
        """
    )
    x = add_tensor(graph, np.arange(20, dtype=f32), "x")
    engine = run_vertex(graph, "Square", {"x": x})
    np.testing.assert_array_equal(engine.readTensor("x"), np.arange(20) ** 2)


def test_short_vectors_and_intrinsics_compute_what_the_chip_does() -> None:
    graph = make_graph(
        """
        #include <ipu_vector_math>
        class Softplus : public Vertex {
        public:
          Input<Vector<float, VectorLayout::SPAN, 8>> x;
          Output<Vector<float, VectorLayout::SPAN, 8>> y;
          bool compute() {
            const float2 *in = reinterpret_cast<const float2 *>(&x[0]);
            float2 *out = reinterpret_cast<float2 *>(&y[0]);
            for (unsigned i = 0; i < x.size() / 2; ++i)
              out[i] = ipu::ln(__builtin_ipu_exp(in[i]) + 1.0f);
            return true;
          }
        };
        """
    )
    values = np.linspace(-2, 2, 6).astype(f32)
    x, y = add_tensor(graph, values, "x"), add_tensor(graph, 0 * values, "y")
    engine = run_vertex(graph, "Softplus", {"x": x, "y": y})
    np.testing.assert_allclose(engine.readTensor("y"), np.log1p(np.exp(values)), rtol=1e-5)


@pytest.mark.parametrize(("alignment", "is_enough"), [(4, False), (8, True), (16, True)])
@pytest.mark.parametrize("field", ["x", "y"])
def test_vectors_wider_than_a_field_is_aligned_to_are_found(
    field: str, alignment: int, is_enough: bool
) -> None:
    aligned = {"x": 8, "y": 8, field: alignment}
    graph = make_graph(
        f"""
        class Pairs : public Vertex {{
        public:
          Input<Vector<float, VectorLayout::SPAN, {aligned["x"]}>> x;
          Output<Vector<float, VectorLayout::SPAN, {aligned["y"]}>> y;
          bool compute() {{
            auto *from = reinterpret_cast<const float2 *>(&x[0]);
            auto *to = reinterpret_cast<float2 *>(&y[0]);
            for (unsigned i : poplar::loop(x.size() / 2, 1, 1, 1)) to[i] = from[i] + from[i];
            return true;
          }}
        }};
        """
    )
    x, y = (add_tensor(graph, np.arange(6, dtype=f32), name, 3) for name in "xy")
    cs = graph.addComputeSet("cs")
    vertex = graph.addVertex(cs, "Pairs", {"x": x, "y": y})
    graph.setTileMapping(vertex, 3)
    engine = make_engine(graph, cs)
    if is_enough:
        engine.run()
        np.testing.assert_array_equal(engine.readTensor("y"), 2 * np.arange(6))
        assert engine.report().compute_sets[0].tile_cycles[3] == 6 * 3 * 2
        return
    match = rf"vertex 0 \('Pairs'\).*tile 3.*field '{field}', tensor '{field}'.*aligned"
    with pytest.raises(poplar.graph_program_compilation_error, match=match) as found:
        engine.run()
    assert "test_cpp_codelets.py" in str(found.value)
    graph.setPerfEstimate(vertex, 1)
    with pytest.raises(poplar.graph_program_compilation_error, match=match):
        engine.run()  # a second time, too


def test_an_estimate_that_reads_what_is_not_aligned_is_the_planners() -> None:
    graph = make_graph(
        """
        class Counts : public Vertex {
        public:
          Input<Vector<float>> x;
          Output<float> y;
          bool compute() { *y = x[0]; return true; }
          std::uint64_t getCycleEstimate() const {
            auto pairs = reinterpret_cast<const float2 *>(&x[0])[0];
            return 7 + std::uint64_t(pairs[0]);
          }
        };
        """
    )
    x, y = add_tensor(graph, np.ones(4, f32), "x"), add_tensor(graph, np.zeros(1, f32), "y")
    engine = run_vertex(graph, "Counts", {"x": x, "y": y[0]})
    report = engine.report()
    assert report.compute_sets[0].tile_cycles.max() > 0
    assert report.default_share > 0


TWOS = """
class Twos : public Vertex {
public:
  Input<Vector<half>> x;
  Output<Vector<half>> y;
  bool compute() {
    auto *from = reinterpret_cast<const half2 *>(&x[0]);
    auto *to = reinterpret_cast<half2 *>(&y[0]);
    for (unsigned i = 0; i < x.size() / 2; ++i) to[i] = from[i] + from[i];
    return true;
  }
};
"""


@pytest.mark.parametrize("first", [0, 1, 2])
def test_slices_that_begin_at_a_word_may_be_read_by_words(first: int) -> None:
    graph = make_graph(TWOS)
    x = add_tensor(graph, np.arange(10, dtype=np.float16), "x")
    y = add_tensor(graph, np.zeros(4, np.float16), "y")
    fields = {"x": x.slice(first, first + 4), "y": y}
    if first % 2:
        with pytest.raises(poplar.graph_program_compilation_error, match=r"field 'x'.*aligned"):
            run_vertex(graph, "Twos", fields)
        return
    engine = run_vertex(graph, "Twos", fields)
    np.testing.assert_array_equal(engine.readTensor("y"), 2 * np.arange(first, first + 4))


def test_what_begins_a_tiles_part_of_a_variable_may_be_read_by_words() -> None:
    """Tile 0 holds three elements, so that the slice of tile 1 begins at an odd one."""
    graph = make_graph(TWOS)
    x = add_tensor(graph, np.arange(7, dtype=np.float16), "x")
    y = add_tensor(graph, np.zeros(4, np.float16), "y")
    graph.setTileMapping(x.slice(0, 3), 0)
    graph.setTileMapping(x.slice(3, 7), 1)
    engine = run_vertex(graph, "Twos", {"x": x.slice(3, 7), "y": y})
    np.testing.assert_array_equal(engine.readTensor("y"), 2 * np.arange(3, 7))


def test_constructors_may_be_declared_alone_as_poplars_compiler_defines_them() -> None:
    graph = make_graph(
        """
        #include <poplar/StackSizeDefs.hpp>
        #include <ipu_vector_math>
        template <class T> class Declared : public Vertex {
        public:
          Declared();
          Input<Vector<T>> x;
          Output<Vector<T>> y;
          const unsigned n;
          bool compute() {
            for (unsigned i = 0; i < y.size(); ++i)
              y[i] = ipu::sum(float2{ipu::pow(x[i], 2.0f), ipu::fabs(ipu::log(x[i]))}) * n;
            return true;
          }
        };
        template class Declared<float>;
        class Defined : public Vertex {
        public:
          Defined();
          Output<float> y;
          int n;
          bool compute() { *y = n; return true; }
        };
        Defined::Defined() : n(7) {}
        DEF_STACK_USAGE(64, __runCodelet_Declared);
        """
    )
    values = np.linspace(0.1, 2, 5).astype(f32)
    x, y = add_tensor(graph, values, "x"), add_tensor(graph, 0 * values, "y")
    engine = run_vertex(graph, "Declared<float>", {"x": x, "y": y, "n": 3})
    wanted = 3 * (values**2 + abs(np.log(values)))
    np.testing.assert_allclose(engine.readTensor("y"), wanted, rtol=1e-6)
    engine = run_vertex(graph, "Defined", {"y": add_tensor(graph, f32(0), "z")})
    assert engine.readTensor("z") == 7


def test_a_function_without_definition_is_named() -> None:
    text = """
        float missing(float x);
        class Calls : public Vertex {
        public:
          InOut<float> x;
          bool compute() { *x = missing(*x); return true; }
        };
        """
    with pytest.raises(poplar.graph_program_compilation_error, match=r"cannot be loaded.*missing"):
        make_graph(text)


def test_half_rounds_as_numpy_does() -> None:
    graph = make_graph(
        """
        class Round : public Vertex {
        public:
          Input<Vector<float>> x;
          Output<Vector<half>> y;
          bool compute() {
            for (unsigned i = 0; i < x.size(); ++i) y[i] = half(x[i]);
            return true;
          }
        };
        """
    )
    any_bits = np.random.default_rng(0).integers(0, 2**32, 4000, np.uint32).view(f32)
    edges = [0, -0.0, 65504, 65519.99, 65520, 1e9, -1e9, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8, np.inf]
    small = np.exp(np.linspace(-20, 12, 999, dtype=f32))
    values = np.concatenate([any_bits[~np.isnan(any_bits)], np.array(edges, f32), small])
    x = add_tensor(graph, values, "x")
    y = add_tensor(graph, np.zeros(values.size, np.float16), "y")
    engine = run_vertex(graph, "Round", {"x": x, "y": y})
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16)
    np.testing.assert_array_equal(engine.readTensor("y").view(np.uint16), wanted.view(np.uint16))


CYCLES = """
class Says : public Vertex {
public:
  Input<Vector<float>> x;
  Output<float> y;
  unsigned extra;
  bool compute() { *y = x[0]; return true; }
  std::uint64_t getCycleEstimate() const { return 5 + 3 * x.size() + extra; }
};
class Loops : public Vertex {
public:
  Input<Vector<float>> x;
  Output<float> y;
  bool compute() {
    float sum = 0;
    for (auto i : poplar::loop(x.size(), 1, 0, 2)) sum += x[i] * x[i];
    for (auto i : poplar::loop(3, 2, 2, 1)) sum += i;
    *y = sum;
    return true;
  }
};
class Multi : public MultiVertex {
public:
  InOut<Vector<float>> x;
  bool compute(unsigned worker) {
    for (auto i : poplar::loop((x.size() + 5 - worker) / 6, 1, 1, 1)) x[6 * i + worker] += 1;
    return true;
  }
};
"""


@pytest.mark.parametrize(
    ("name", "cycles"), [("Says", 6 * (5 + 30 + 4)), ("Loops", 6 * (20 + 12)), ("Multi", 6 * 4)]
)
def test_cycles_are_what_the_codelet_says(name: str, cycles: int) -> None:
    graph = make_graph(CYCLES)
    fields: dict[str, Any] = {"x": add_tensor(graph, np.ones(10, f32), "x")}
    if name != "Multi":
        fields["y"] = add_tensor(graph, f32(0), "y")
    if name == "Says":
        fields["extra"] = 4
    report = run_vertex(graph, name, fields).report()
    assert report.compute_sets[0].tile_cycles[0] == cycles
    assert not report.default_share


def test_vertices_with_other_plain_fields_have_other_cycles_in_one_call() -> None:
    graph = make_graph(CYCLES)
    cs = graph.addComputeSet("cs")
    x, y = add_tensor(graph, np.ones(2, f32), "x"), add_tensor(graph, np.zeros(3, f32), "y")
    for i in range(3):
        fields = {"x": x, "y": y[i], "extra": 10 * i}
        graph.setTileMapping(graph.addVertex(cs, "Says", fields), i)
    engine = make_engine(graph, cs)
    assert engine.report().compute_sets[0].tile_cycles[:3].tolist() == [66, 126, 186]
    assert len([*engine._lowering.steps.all_groups()]) == 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("field", "index"), [("y", "y.size()"), ("y", "-1"), ("y", "4"), ("z", "-1"), ("z", "1")]
)
def test_a_write_outside_of_a_slice_is_found(field: str, index: str) -> None:
    graph = make_graph(
        f"""
        struct Stray : public Vertex {{
          Output<Vector<float>> y;
          InOut<Vector<float>> z;
          bool compute() {{ if (z[0] > 0) (&{field}[0])[int({index})] = 1; return true; }}
        }};
        """
    )
    y, z = add_tensor(graph, np.zeros((3, 4), f32), "y"), add_tensor(graph, np.zeros(3, f32), "z")
    graph.setInitialValue(z[2], 1)
    cs = graph.addComputeSet("cs")
    for i in range(3):
        vertex = graph.addVertex(cs, "Stray", {"y": y[i], "z": z.slice(i, i + 1)})
        graph.setTileMapping(vertex, 10 + i)
    engine = make_engine(graph, cs)
    with pytest.raises(poplar.poplar_error, match=rf"vertex 2 .*tile 12.*'{field}'"):
        engine.run(0)


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("bool compute() { return undeclared; }", "undeclared", 5),
        ('bool compute() { asm volatile("nop"); return true; }', "inline assembly", 5),
        ("bool compute() { __builtin_ipu_f16v8absacc(1); return true; }", "f16v8absacc", 5),
        ("Input<double> d; bool compute() { return true; }", "elements of no type", 3),
        ("Vector<double> v; bool compute() { return true; }", "elements of no type", 3),
    ],
)
def test_what_the_host_cannot_run_is_refused_with_its_line(
    tmp_path: Path, body: str, message: str, line: int | None
) -> None:
    path = tmp_path / "wrong.cpp"
    path.write_text(
        f"{HEAD}class Wrong : public Vertex {{ public:\n  Output<float> y;\n{body}\n}};\n"
    )
    graph = poplar.Graph(poplar.IPUModel().createDevice().getTarget())
    with pytest.raises(poplar.graph_program_compilation_error, match=message) as error:
        graph.addCodelets(str(path))
    if line is not None:
        assert f"{path}:{line}" in str(error.value)


def test_without_a_compiler_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(poplar.graph_program_compilation_error, match="no-such-compiler"):
        make_graph(SUM)


def test_flags_and_headers_beside_the_file_reach_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "factor.hpp").write_text("#define FACTOR (2 * MORE)\n")
    path = tmp_path / "a.cpp"
    path.write_text(
        f'{HEAD}#include "factor.hpp"\nstruct Times : public Vertex {{ InOut<float> x;\n'
        '__attribute__((target("worker"))) bool compute() { *x *= FACTOR; return true; } };\n'
    )
    graph = poplar.Graph(poplar.IPUModel().createDevice().getTarget())
    graph.addCodelets(str(path), poplar.CodeletFileType.CppSource, "-DMORE=5")
    engine = run_vertex(graph, "Times", {"x": add_tensor(graph, f32(3), "x")})
    assert engine.readTensor("x") == 30
    with pytest.raises(poplar.graph_program_compilation_error, match="the flags have -o"):
        graph.addCodelets(str(path), "-DMORE=5 -o a.gp")
    for name in ("vertices.gp", "vertices.S"):
        with pytest.raises(NotImplementedError, match=name):
            graph.addCodelets(name)
    with pytest.raises(poplar.unknown_vertex_type, match="SumVertex"):
        graph.addVertex(graph.addComputeSet("cs"), "SumVertex")


TWICE = """
class Twice : public Vertex {
public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() { for (unsigned i = 0; i < x.size(); ++i) y[i] = 2 * x[i]; return true; }
};
"""


def twice(graph: poplar.Graph, prog: program.Sequence, x: poplar.Tensor) -> poplar.Tensor:
    graph.addCodelets(io.StringIO(HEAD + TWICE))
    y = graph.addVariable(poplar.FLOAT, x.shape(), "y")
    cs = graph.addComputeSet("twice")
    vertex = graph.addVertex(cs, "Twice", {"x": x, "y": y})
    for each in (x, y, vertex):
        graph.setTileMapping(each, 7)
    prog.add(program.Execute(cs))
    return y


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_saved_programs_call_codelets_that_this_user_has_compiled(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    x = np.arange(5, dtype=f32)
    compiled = ipu.compile(lambda x: poplar.call(twice, x) + 1, engine=engine)
    compiled.lower(x).compile().save(tmp_path / "saved")
    load = f"""
import numpy as np, ipujax as ipu
print(ipu.load_executable({str(tmp_path / "saved")!r})(np.arange(5, dtype=np.float32)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True)
    assert done.stdout.strip() == "[1.0, 3.0, 5.0, 7.0, 9.0]", done.stderr
    for library in (tmp_path / "cache").glob("*.codelets.so"):
        library.unlink()
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True)
    assert "ExecutableError: the executable calls codelets in C++" in done.stderr
    assert not done.stdout
