"""Which codelets in C++ may run on several threads."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from ipujax.poplar import program
from ipujax.poplar.cpp_threads import needs_one_thread
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph

SHARED = {
    "a variable": "int count = 0;",
    "one without a value": "int count;",
    "one with braces": "int count{3};",
    "an array": "float table[4];",
    "one with a function's value": "int count = first();",
    "one of a class": "std::array<float, 4> table;",
    "one behind its class": "struct Pair { int a; } pair;",
    "in a namespace": "namespace { int count; }",
    "in a namespace's namespace": "namespace a::b { namespace c { int count; } }",
    "behind a namespace": "namespace a { int f() { return 1; } } int count;",
    "inline": "inline int count = 0;",
    "aligned": "alignas(8) float table[4] = {1, 2, 3, 4};",
    "with a constructor": "std::mt19937 numbers(42);",
    "in C": 'extern "C" { int count; }',
    "elsewhere": "extern int count;",
    "in a function": "int f() { static int count = 0; return count++; }",
    "with a constructor in a function": "int f() { static std::mt19937 numbers(42); return 1; }",
    "a class's own": "struct A { static inline int count = 0; };",
    "a pointer to constants": "static const float *table = nullptr;",
    "of each thread": "thread_local int count;",
    "what prints": 'void f() { fprintf(stderr, "%d", 1); }',
}

OWN = {
    "a constant": "const int count = 3;",
    "a static constant": "static const int count = 3; static constexpr float table[2] = {1, 2};",
    "functions": "int f(int x) { int y = x; return y; } static inline int g(int x) { return x; }",
    "a static function": "static __attribute__((always_inline)) int f(int x) { return x; }",
    "a template": "template <class T> static T f(T x) { T y = x; return y; }",
    "a function in C": 'extern "C" int f() { int x = 1; return x; }',
    "a class": "struct A { int a = 1; static int f() { return 1; } }; class B;",
    "types": "using T = int; typedef float F; enum class E : int { A, B };",
    "a namespace": "namespace a { struct A { int a; }; int f() { int x[2] = {1}; return x[0]; } }",
    "an instance": "template class A<float>;",
}


def words_of(text: str) -> list[str]:
    return re.findall(r'"[^"]*"|\w+|::|\S', text)


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED)
def test_vertices_with_shared_variables_run_on_one_thread(text: str) -> None:
    assert needs_one_thread(words_of(text))


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_vertices_with_variables_of_their_own_run_on_several(text: str) -> None:
    assert not needs_one_thread(words_of(text))


COUNTER = """
#include <poplar/Vertex.hpp>
namespace { int count = 0; }
class Counter : public poplar::Vertex {
public:
  poplar::Output<int> number;
  bool compute() {
    const int before = count;
    volatile float work = 0;
    for (int i = 0; i < 2000; ++i) work = work + i;
    count = before + 1;
    *number = before;
    return true;
  }
};
"""


def test_vertices_that_count_themselves_lose_none() -> None:
    graph = make_graph()
    graph.addCodelets(io.StringIO(COUNTER))
    numbers = add_tensor(graph, np.zeros(1024, np.int32), "numbers")
    graph.createHostRead("numbers", numbers)
    compute_set = graph.addComputeSet("count")
    for i in range(1024):
        vertex = graph.addVertex(compute_set, "Counter", {"number": numbers[i]})
        graph.setTileMapping(vertex, i)
        graph.setPerfEstimate(vertex, 1)
    engine = make_engine(graph, program.Execute(compute_set))
    engine.run(0)
    result = np.zeros(1024, np.int32)
    engine.readTensor("numbers", result)
    np.testing.assert_array_equal(result, np.arange(1024))
