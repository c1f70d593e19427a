"""Vertices on tiles: numbers, compute sets on exactly these tiles, cycles, gradients, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import tiles
from tests.ipujax.tiles.test_placing import T, X, received, report_of

W = np.linspace(-1, 1, 4, dtype=np.float32)


def scale(x: jax.Array, w: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    return (x * w).sum(), {"sum": x + w, "is_large": x > 4}


def on_tiles(x: jax.Array, w: jax.Array) -> Any:
    return tiles.map(scale, tiles.put_sharded(x, T), tiles.put_replicated(w, T))


def cycles_on_tiles(report: Any, name: str) -> dict[int, int]:
    (found,) = [each for each in report.compute_sets if each.name == name]
    return {int(t): int(found.tile_cycles[t]) for t in np.flatnonzero(found.tile_cycles)}


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, ipu.compile])
def test_a_function_gives_its_structure_with_values_on_tiles(transform: Any) -> None:
    total, rest = transform(on_tiles)(X, W)
    np.testing.assert_allclose(total.array, (X * W).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(rest["sum"].array, X + W)
    np.testing.assert_array_equal(rest["is_large"].array, X > 4)
    assert total.tiles == rest["sum"].tiles == T


def test_a_map_is_a_compute_set_with_a_vertex_on_each_tile() -> None:
    report = report_of(on_tiles, X, W)
    (found,) = [each for each in report.compute_sets if each.name == "scale"]
    assert np.flatnonzero(found.vertices).tolist() == list(T)
    assert {each.name for each in report.exchanges} == {"put_sharded", "put_replicated"}
    assert len(set(cycles_on_tiles(report, "scale").values())) == 1


def test_what_lies_elsewhere_is_exchanged() -> None:
    def elsewhere(x: jax.Array, w: jax.Array) -> Any:
        return tiles.map(scale, tiles.put_sharded(x, T), tiles.put_sharded(x, (3, 0, 1)), tiles=T)

    report = report_of(elsewhere, X, W)
    assert received(report, "scale") == {5: 16, 8: 16}

    def shared(x: jax.Array, w: jax.Array) -> Any:
        return tiles.map(scale, tiles.put_sharded(x, T), w)

    assert received(report_of(shared, X, W), "scale") == {3: 16, 5: 16, 8: 16}
    np.testing.assert_allclose(shared(X, W)[0].array, (X * W).sum(1), rtol=1e-6)


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_replicas_have_tiles_of_their_own(engine: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    def summed(x: jax.Array) -> jax.Array:
        own = x + ipu.replication_ops.replication_index()
        return ipu.cross_replica_ops.cross_replica_sum(on_tiles(own, W)[0].array)

    found = ipu.compile(summed, engine=engine)(X)
    np.testing.assert_allclose(found, (X * W).sum(1) + ((X + 1) * W).sum(1), rtol=1e-5)


def test_it_mixes_with_ordinary_jax() -> None:
    def mixed(x: jax.Array, w: jax.Array) -> jax.Array:
        total, _ = on_tiles(jnp.sin(x), w)
        return jnp.exp(total.array).sum()

    found = ipu.compile(mixed)(X, W)
    np.testing.assert_allclose(found, np.exp((np.sin(X) * W).sum(1)).sum(), rtol=1e-5)
    assert "scale" in {each.name for each in report_of(mixed, X, W).compute_sets}


@pytest.mark.parametrize("count", [1, 5])
def test_maps_within_loops(count: int) -> None:
    def loop(x: jax.Array) -> jax.Array:
        def step(_, y):
            return tiles.map(lambda row: row * 2, y)

        return jax.lax.fori_loop(0, count, step, tiles.put_sharded(x, T)).array

    np.testing.assert_array_equal(ipu.compile(loop)(X), X * 2**count)


def test_numbers_of_python_stay_numbers_and_closed_over_arrays_go_to_all_tiles() -> None:
    def closed(x: jax.Array, w: jax.Array) -> jax.Array:
        half = tiles.put_sharded(x.astype(jnp.float16), T)

        def vertex(row, factor):
            return row * factor * w.astype(jnp.float16)

        return tiles.map(vertex, half, 2.0).array

    found = ipu.compile(closed)(X, W)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, X * 2 * W, rtol=1e-2)
    grads = jax.grad(lambda x, w: closed(x, w).sum().astype(jnp.float32), 1)(X, W)
    np.testing.assert_allclose(grads, 2 * X.sum(0), rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cycles": lambda x, w: 12 + x.size // 2, "threads": 6}, 14),
        ({"cycles": lambda w: 12 + w.size // 2}, 6 * 14),
        ({"cycles": 20}, 120),
        ({"cycles": lambda: (1, 2, 3, 9, 5, 6), "threads": 6}, 54),
    ],
)
def test_cycles_are_a_workers_or_the_tiles(options: Any, expected: int) -> None:
    @tiles.vertex(**options)
    def named(x: jax.Array, w: jax.Array) -> jax.Array:
        return x * w

    def run(x: jax.Array, w: jax.Array) -> Any:
        return tiles.map(named, tiles.put_sharded(x, T), tiles.put_replicated(w, T))

    assert cycles_on_tiles(report_of(run, X, W), "named") == dict.fromkeys(T, expected)


def test_a_vertex_without_cycles_has_the_planners() -> None:
    def run(vertex: Any) -> Any:
        return report_of(lambda x: tiles.map(vertex, tiles.put_sharded(x, T)), X)

    def double(x: jax.Array) -> jax.Array:
        return x * 2

    alone, shared = run(tiles.vertex(double)), run(tiles.vertex(threads=6)(double))
    assert cycles_on_tiles(alone, "double")[3] == 6 * cycles_on_tiles(shared, "double")[3]
    assert cycles_on_tiles(run(double), "double") == cycles_on_tiles(shared, "double")


def test_state_is_given_first_and_returned_last() -> None:
    @tiles.vertex(state=("memory",))
    def accumulate(memory: Any, x: jax.Array) -> Any:
        return (memory["sum"] * x).sum(), {"sum": memory["sum"] + x}

    def run(x: jax.Array) -> Any:
        placed = tiles.put_sharded(x, T)
        memory = {"sum": placed}
        _, memory = tiles.map(accumulate, memory, placed)
        return tiles.map(accumulate, memory, placed)

    for transform in (jax.jit, ipu.compile):
        total, memory = transform(run)(X)
        np.testing.assert_allclose(total.array, (2 * X * X).sum(1))
        np.testing.assert_allclose(memory["sum"].array, 3 * X)
    grads = jax.grad(lambda x: run(x)[0].array.sum())(X)
    np.testing.assert_allclose(grads, 4 * X)


@pytest.mark.parametrize("transform", [jax.jit, ipu.compile])
def test_gradients_are_those_of_plain_jax(transform: Any) -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        total, rest = on_tiles(x, w)
        return (total.array**2).sum() + rest["sum"].array.sum()

    def plain(x: jax.Array, w: jax.Array) -> jax.Array:
        return ((x * w).sum(1) ** 2).sum() + (x + w).sum()

    for found, wanted in zip(
        transform(jax.grad(loss, (0, 1)))(X, W), jax.grad(plain, (0, 1))(X, W), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)

    def second(f):
        return jax.grad(lambda x: jax.grad(f)(x, W).sum())

    np.testing.assert_allclose(transform(second(loss))(X), second(plain)(X), rtol=1e-5)


def test_gradients_are_vertices_on_the_same_tiles() -> None:
    gradient = jax.grad(lambda x: on_tiles(x, W)[0].array.sum())
    report = report_of(gradient, X)
    assert set(cycles_on_tiles(report, "scale_gradient")) == set(T)


def test_a_rule_is_the_gradient() -> None:
    @tiles.vertex
    def rounded(x: jax.Array, factor: float) -> jax.Array:
        return jnp.round(x * factor)

    @rounded.defvjp
    def straight_through(operands: Any, cotangent: jax.Array) -> Any:
        return cotangent * operands[1], None

    def run(x):
        return (tiles.map(rounded, tiles.put_sharded(x, T), 0.3).array * X).sum()

    np.testing.assert_allclose(ipu.compile(jax.grad(run))(X), X * 0.3, rtol=1e-6)


def test_vertices_can_have_a_vmap_of_their_own() -> None:
    batch = np.stack([X, X + 1], 1)

    def run(x):
        return tiles.map(jax.vmap(lambda row: row.sum()), tiles.put_sharded(x, T)).array

    np.testing.assert_allclose(run(batch), batch.sum(2))


CODE = """#include <poplar/Vertex.hpp>
using namespace poplar;
template <typename T> class Scale : public Vertex {
 public:
  Input<Vector<T>> x;
  InOut<Vector<T>> y;
  Vector<Input<Vector<T>>> m;
  Output<Vector<T>> out;
  int k = 3;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i) { out[i] = x[i] * k + m[1][0]; y[i] += 1; }
    return true;
  }
};
"""


def test_vertices_in_cpp(tmp_path: Path) -> None:
    path = tmp_path / "scale.cpp"
    path.write_text(CODE)
    vertex = tiles.vertex(
        lambda x, y, m, k=3: {"out": x, "y": y},
        source=path,
        name="Scale<float>",
        cycles=lambda x: 10 + x.size,
    )
    matrix = np.arange(4, dtype=np.float32).reshape(2, 2)

    def run(x: jax.Array) -> Any:
        placed = tiles.put_sharded(x, T)
        return tiles.map(vertex, placed, placed, matrix, 5)

    found = ipu.compile(run)(X)
    np.testing.assert_array_equal(found["out"].array, X * 5 + 2)
    np.testing.assert_array_equal(found["y"].array, X + 1)
    assert cycles_on_tiles(report_of(run, X), "Scale<float>") == dict.fromkeys(T, 6 * 14)
    with pytest.raises(ipu.poplar.poplar_error, match="defvjp"):
        jax.grad(lambda x: run(x)["out"].array.sum())(X)

    @vertex.defvjp
    def pull(operands: Any, cotangents: Any) -> Any:
        return cotangents["out"] * operands[3], cotangents["y"], None, None

    def loss(x):
        return (run(x)["out"].array * X).sum() + run(x)["y"].array.sum()

    np.testing.assert_allclose(jax.grad(loss)(X), X * 5 + 1)


def test_a_block_counts_the_cycles_of_its_steps() -> None:
    @tiles.vertex(cycles=100, threads=6)
    def step(x: jax.Array) -> jax.Array:
        return x + 1

    def run(x: jax.Array) -> Any:
        placed = tiles.put_sharded(x, T)
        with tiles.cycle_count() as first:
            placed = tiles.map(step, placed)
        with tiles.cycle_count() as both:
            placed = tiles.map(step, tiles.map(step, placed))
            with tiles.cycle_count() as inner:
                placed = tiles.gather(placed, (1, 2, 0), T)
        return placed.array, first.cycles, both.cycles, inner.cycles

    array, first, both, inner = ipu.compile(run)(X)
    np.testing.assert_array_equal(array, (X + 3)[[1, 2, 0]])
    report = report_of(run, X)
    of_step, of_gather = report.compute_sets[0].cycles, report.steps[-1]
    assert first == of_step
    assert of_gather.kind == "exchange"
    assert inner == of_gather.cycles + 100  # the sync before it
    assert both == 2 * of_step + inner
    assert first.dtype == np.uint32
    assert report.cycles == ipu.compile(run).lower(X).compile().report().cycles
    assert [int(each) for each in jax.jit(run)(X)[1:]] == [0, 0, 0]


def test_blocks_within_loops_count_one_iteration() -> None:
    @tiles.vertex(cycles=100, threads=6)
    def step(x: jax.Array) -> jax.Array:
        return x + 1

    def body(carry: Any, _: Any) -> Any:
        with tiles.cycle_count() as count:
            carry = tiles.map(step, carry)
        return carry, count.cycles

    def run(x):
        return jax.lax.scan(body, tiles.put_sharded(x, T), None, length=3)

    placed, counts = ipu.compile(run)(X)
    np.testing.assert_array_equal(placed.array, X + 3)
    assert counts.tolist() == [211] * 3  # 100, a launch and a sync


PLACED = tiles.TileArray(X, T)


@tiles.vertex(state=("memory",))
def forgets(memory: jax.Array, x: jax.Array) -> jax.Array:
    return x


@tiles.vertex(state=("memory",))
def keeps(memory: jax.Array, x: jax.Array) -> Any:
    return x, memory


@tiles.vertex(cycles=lambda z: 1)
def miscounts(x: jax.Array) -> jax.Array:
    return x


def read_early() -> None:
    with tiles.cycle_count() as count:
        _ = count.cycles


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: tiles.map(scale, X, W), "no operand of 'scale' is on tiles"),
        (lambda: tiles.map(scale, PLACED, PLACED, tiles=(0, 1)), "3 rows .* 2 tiles"),
        (lambda: tiles.map(lambda: 1.0, tiles=()), "no tiles"),
        (lambda: tiles.map(scale, PLACED, PLACED, tiles=(0, 1, 1)), "tile 1 is given twice"),
        (lambda: tiles.map(lambda x: None, PLACED), "returns nothing"),
        (lambda: tiles.map(lambda x: x.astype(jnp.bfloat16), PLACED), "bfloat16"),
        (lambda: tiles.map(3, PLACED), "the vertex is 3"),
        (lambda: tiles.map(forgets, PLACED, PLACED), "return a tuple with its state last"),
        (lambda: tiles.map(keeps, PLACED, PLACED, tiles=(0, 1, 2)), "not on its tiles"),
        (lambda: tiles.map(miscounts, PLACED), "asks for 'z'"),
        (lambda: tiles.vertex(threads=3)(scale), "threads is 3"),
        (lambda: tiles.vertex(state=("w",))(scale), "first parameters"),
        (lambda: tiles.vertex(cycles="many")(scale), "cycles"),
        (lambda: jax.vmap(lambda x: tiles.map(jnp.sin, tiles.TileArray(x, T)))(X[None]), "vmap"),
        (read_early, "has not ended"),
    ],
)
def test_what_is_wrong_is_said_with_the_users_line(wrong: Any, words: str) -> None:
    with pytest.raises(ipu.poplar.poplar_error, match=words) as caught:
        wrong()
    assert "test_mapping.py" in str(caught.value)
