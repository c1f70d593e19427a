"""Derivatives of what runs on tiles, of all orders and modes, against plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import tiles
from tests.ipujax.tiles.test_placing import T, X, report_of

W = np.linspace(-1, 1, 4, dtype=np.float32)
ROWS = (2, 0, 0)


def on_tiles(x: jax.Array) -> jax.Array:
    """A map that closes over an array, with an integer result, and a gather."""

    def vertex(row: jax.Array, factor: jax.Array) -> Any:
        return jnp.sin(row) * factor * jnp.asarray(W), row > 3

    value, is_large = tiles.map(vertex, tiles.put_sharded(x, T), tiles.put_replicated(x[0], T))
    chosen = tiles.gather(value, ROWS, (1, 2, 3))
    return (chosen.array**2).sum() + (value.array * is_large.array).sum()


def plain(x: jax.Array) -> jax.Array:
    value = jnp.sin(x) * x[0] * W
    return (value[np.array(ROWS)] ** 2).sum() + (value * (x > 3)).sum()


def gradient(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], Any]:
    return jax.grad(function)


def push_forward(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], Any]:
    return lambda x: jax.jvp(function, (x,), (jnp.cos(x),))[1]


def summed(function: Callable[[jax.Array], Any]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: (function(x) * jnp.cos(x)).sum()


ORDERS = {
    "jvp": push_forward,
    "grad": gradient,
    "jvp of jvp": lambda f: push_forward(push_forward(f)),
    "jvp of grad": lambda f: push_forward(gradient(f)),
    "grad of jvp": lambda f: gradient(push_forward(f)),
    "grad of grad": lambda f: gradient(summed(gradient(f))),
    "grad of grad of checkpoint": lambda f: gradient(summed(gradient(jax.checkpoint(f)))),
}
TRANSFORMS: dict[str, Any] = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "fused": lambda f: ipu.compile(f, engine="fused"),
    "replay": lambda f: ipu.compile(f, engine="replay"),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("order", ORDERS)
def test_derivatives_are_those_of_plain_jax(order: str, transform: str) -> None:
    found = TRANSFORMS[transform](ORDERS[order](on_tiles))(X)
    np.testing.assert_allclose(found, ORDERS[order](plain)(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ["jvp", "grad", "grad of grad"])
def test_derivatives_through_loops_and_branches(order: str) -> None:
    def loop(x: jax.Array) -> jax.Array:
        def step(value: tiles.TileArray, _: None) -> Any:
            return tiles.map(jnp.sin, value), value.array.sum()

        value, sums = jax.lax.scan(step, tiles.put_sharded(x, T), None, length=3)
        halves = jax.lax.cond(x.sum() > 1, lambda v: tiles.map(jnp.cos, v), lambda v: v, value)
        return (halves.array**2).sum() + (sums**2).sum()

    def reference(x: jax.Array) -> jax.Array:
        value, total = x, 0.0
        for _ in range(3):
            value, total = jnp.sin(value), total + value.sum() ** 2
        return (jnp.cos(value) ** 2).sum() + total

    found = ipu.compile(ORDERS[order](loop))(X)
    np.testing.assert_allclose(found, ORDERS[order](reference)(X), rtol=1e-4, atol=1e-3)


def test_derivatives_are_vertices_on_the_same_tiles() -> None:
    def run(x: jax.Array) -> jax.Array:
        return tiles.map(jnp.sin, tiles.put_sharded(x, T)).array

    forward = report_of(push_forward(run), X)
    backward = report_of(jax.grad(lambda x: run(x).sum()), X)
    for report, name in ((forward, "sin_tangent"), (backward, "sin_gradient")):
        (found,) = [each for each in report.compute_sets if each.name == name]
        assert np.flatnonzero(found.vertices).tolist() == list(T)
    assert [each.name for each in backward.compute_sets] == ["sin_gradient"]
    (placed,) = [each for each in forward.exchanges if each.name == "put_sharded"]
    assert placed.runs == 2  # of the array, and of its tangent


def test_gradients_are_computed_for_what_is_asked_alone() -> None:
    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        return tiles.map(jnp.dot, tiles.put_sharded(x, T), tiles.put_replicated(w, T)).array.sum()

    one = report_of(jax.grad(run, 0), X, W)
    both = report_of(jax.grad(run, (0, 1)), X, W)
    cycles = [
        next(each.cycles for each in report.compute_sets if each.name == "dot_gradient")
        for report in (one, both)
    ]
    assert cycles[0] < cycles[1]


def test_a_rule_is_the_derivative_in_both_modes(tmp_path: Path) -> None:
    path = tmp_path / "halve.cpp"
    path.write_text("""#include <poplar/Vertex.hpp>
    using namespace poplar;
    class Halve : public Vertex {
     public:
      Input<Vector<float>> x;
      Output<Vector<float>> half;
      Output<Vector<int>> count;
      bool compute() {
        for (unsigned i = 0; i < x.size(); ++i) half[i] = x[i] / 2;
        count[0] = x.size();
        return true;
      }
    };""")
    one = jax.ShapeDtypeStruct((1,), np.int32)
    vertex = tiles.vertex(lambda x: {"half": x, "count": one}, source=path, name="Halve")

    def run(x: jax.Array) -> jax.Array:
        return tiles.map(vertex, tiles.put_sharded(x, T))["half"].array

    for transform in (push_forward, lambda f: jax.grad(lambda x: f(x).sum())):
        with pytest.raises(ipu.poplar.poplar_error, match="defvjp"):
            transform(run)(X)
    np.testing.assert_allclose(jax.grad(lambda x: run(jax.lax.stop_gradient(x)).sum())(X), X * 0)

    @vertex.defvjp
    def pull(operands: Any, cotangents: Any) -> Any:
        return (cotangents["half"] / 2,)

    np.testing.assert_allclose(ipu.compile(push_forward(run))(X), jnp.cos(X) / 2, rtol=1e-6)
    np.testing.assert_allclose(
        ipu.compile(jax.grad(lambda x: (run(x) * X).sum()))(X), X / 2, rtol=1e-6
    )


def test_steps_on_tiles_in_the_stages_of_a_pipeline() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    def first(params: Any, x: jax.Array) -> jax.Array:
        return tiles.map(jnp.dot, tiles.put_sharded(x, T), params["a"]).array

    def second(params: Any, hidden: jax.Array) -> jax.Array:
        return (jnp.sin(hidden) * params["b"]).sum()

    def train(params: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, second],
            gradient_accumulation_count=4,
            infeed_queue=ipu.ipu_infeed_queue.IPUInfeedQueue([X] * 4),
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
            device_mapping=[0, 1],
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.01), loss
            ),
            variables=params,
        )

    params = {"a": W[:, None] * W, "b": np.ones((3, 4), np.float32)}
    updated, _ = ipu.compile(train)(params)

    def loss(params: Any) -> jax.Array:
        return 4 * (jnp.sin(X @ params["a"]) * params["b"]).sum()

    expected = jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), updated, expected)


@pytest.mark.parametrize("transform", [jax.jacfwd, jax.jacrev, lambda f: jax.vmap(f, 1)])
def test_a_vmap_over_steps_is_refused(transform: Any) -> None:
    def run(x: jax.Array) -> jax.Array:
        return tiles.map(jnp.sin, tiles.put_sharded(x, T)).array

    with pytest.raises(ipu.poplar.poplar_error, match=r"vmap.*further axis"):
        transform(run)(np.stack([X, X], 1) if transform not in (jax.jacfwd, jax.jacrev) else X)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, ipu.compile])
def test_a_rule_may_close_over_traced_values(transform: Any) -> None:
    def run(x: jax.Array, scale: jax.Array) -> jax.Array:
        @tiles.vertex(cycles=5)
        def square(row: jax.Array) -> jax.Array:
            return row**2

        square.defvjp(lambda operands, cotangent: (scale * operands[0] * cotangent,))
        return tiles.map(square, tiles.put_sharded(x, T)).array.sum()

    def change(x: jax.Array, scale: jax.Array) -> jax.Array:
        return jax.jvp(lambda x: run(x, scale), (x,), (jnp.cos(x),))[1]

    scale = jnp.float32(3)
    expected = scale * X * jnp.cos(X)
    np.testing.assert_allclose(transform(change)(X, scale), expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(transform(jax.grad(run))(X, scale), scale * X, rtol=1e-5)
    of_scale = transform(jax.grad(change, 1))(X, scale)
    np.testing.assert_allclose(of_scale, (X * jnp.cos(X)).sum(), rtol=1e-5)
