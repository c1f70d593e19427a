"""Outlined functions: shared code, where it runs, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError
from ipujax.functional_ops import outlined_function
from ipujax.sharding import has_attr
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct


def calls(fn: Any, *args: Any) -> list[Any]:
    """The equations of a function that call another."""
    return [eqn for eqn in jax.make_jaxpr(fn)(*args).eqns if eqn.primitive.name == "jit"]


def test_calls_share_one_trace() -> None:
    traced: list[int] = []

    @outlined_function
    def layer(x: Any, w: Any) -> Any:
        traced.append(1)
        return jnp.tanh(x @ w)

    def model(x: Any, w: Any) -> Any:
        return layer(layer(layer(x, w), w), w)

    x, w = jnp.ones((2, 2)), jnp.full((2, 2), 0.3)
    eqns = calls(model, x, w)
    assert len(traced) == 1
    assert len(eqns) == 3
    assert len({id(eqn.params["jaxpr"]) for eqn in eqns}) == 1
    expected = jnp.tanh(jnp.tanh(jnp.tanh(x @ w) @ w) @ w)
    np.testing.assert_allclose(ipu.compile(model)(x, w), expected, rtol=1e-6)
    assert layer.__name__ == "layer"


def test_the_decorator_takes_arguments() -> None:
    @outlined_function(name="block")
    def double(x: Any) -> Any:
        return 2 * x

    (call,) = calls(double, 1.0)
    assert call.params["name"] == "block"
    assert double(3) == 6
    assert outlined_function(lambda x: x + 1, name="block")(1) == 2


def test_gradient_and_vmap() -> None:
    function = outlined_function(lambda a, b: (a * b, a + b), unique_sharding=True)
    assert jax.grad(lambda a: function(a, 3.0)[0])(2.0) == 3.0
    np.testing.assert_array_equal(jax.vmap(function)(jnp.arange(3), jnp.arange(3))[0], [0, 1, 4])


def test_closures_over_traced_values() -> None:
    def model(x: Any, w: Any) -> Any:
        inner = outlined_function(lambda x: x * w)
        return inner(inner(x))

    assert ipu.compile(model)(2.0, 3.0) == 18.0
    assert jax.grad(ipu.compile(model), 1)(2.0, 3.0) == 12.0


def two_shards(x: Any) -> Any:
    with ipu.scopes.ipu_shard(1):
        x = jnp.sin(x)
    with ipu.scopes.ipu_shard(0):
        return jnp.cos(x)


@pytest.mark.parametrize("unique", [True, False])
def test_unique_sharding_keeps_a_call_on_one_ipu(unique: bool) -> None:
    function = outlined_function(two_shards, unique_sharding=unique)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    run = ipu.compile(lambda x: function(x) + 1)
    x = jnp.float32(0.5)
    np.testing.assert_allclose(run(x), jnp.cos(jnp.sin(x)) + 1, rtol=1e-6)
    assert ("copy ipu 1 -> ipu 0" in run.lower(x).as_text()) is not unique


@pytest.mark.parametrize("keep", [True, False, None])
def test_keep_input_layouts_is_an_attribute(keep: bool | None) -> None:
    (call,) = calls(outlined_function(lambda x: x * 2, keep_input_layouts=keep), 1.0)
    assert has_attr(call, "keep_input_layouts") is (keep is not None)
    if keep is not None:
        assert f"keep_input_layouts={keep}" in str(call.source_info.name_stack)


def test_positional_arguments_only() -> None:
    function = outlined_function(lambda x: x, name="mine")
    with pytest.raises(TypeError, match="`mine` was given keyword arguments \\(x\\)"):
        function(x=1)


@pytest.mark.parametrize("given", ["text", {"a": [1.0, print]}])
def test_arguments_are_arrays(given: Any) -> None:
    function = outlined_function(lambda x, y: y, name="mine")
    with pytest.raises(ConfigTypeError, match=r"(?s)`mine` was given .*functools\.partial"):
        function(given, 1.0)


@pytest.mark.parametrize("result", [None, (), {}])
def test_a_function_returns_an_array(result: Any) -> None:
    with pytest.raises(ValueError, match="without an array"):
        outlined_function(lambda x: result)(1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"func": 3}, "func of outlined_function is 3"),
        ({"unique_sharding": 1}, "unique_sharding of outlined_function is 1"),
        ({"keep_input_layouts": "yes"}, "keep_input_layouts of outlined_function is 'yes'"),
        ({"name": 4}, "name of outlined_function is 4"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message) as info:
        outlined_function(**arguments)
    assert "fix:" in str(info.value)
    assert "test_functional_ops.py:" in str(info.value)


# --- the original's own programs ------------------------------------------------------------------

ONES = np.ones((64, 64), np.float32)


@pytest.mark.fact("functional.inference")
def test_two_layers_of_one_function() -> None:
    @outlined_function
    def layer(a: Any, b: Any, w: Any) -> Any:
        return jax.nn.sigmoid(a @ w + b)

    def body(a: Any, b: Any, c: Any, one: Any, two: Any) -> Any:
        a = layer(a, b, one)
        return a - layer(a, c, two)

    np.testing.assert_allclose(ipu.compile(body)(*[ONES] * 5), 0 * ONES, atol=1e-6)
    first, second = calls(body, *[ONES] * 5)
    assert first.params["jaxpr"] is second.params["jaxpr"]


@pytest.mark.fact("functional.training")
def test_a_training_step_of_one_function() -> None:
    @outlined_function
    def layer(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.sigmoid(x @ w + b)

    def forward(variables: Any, a: Any, b: Any, c: Any, labels: Any) -> Any:
        a = layer(a, variables["w0"], b)
        a = a - layer(a, variables["w1"], c)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(a, labels)), a

    def body(variables: Any, *data: Any) -> Any:
        gradients, logits = jax.grad(forward, has_aux=True)(variables, *data)
        return logits, jax.tree.map(lambda w, g: w - 0.001 * g, variables, gradients)

    variables = {"w0": ONES, "w1": ONES}
    data = ONES, ONES, ONES, np.ones(64, np.int32)
    logits, trained = ipu.compile(body)(variables, *data)
    np.testing.assert_allclose(logits, 0 * ONES, atol=1e-6)
    np.testing.assert_array_equal(trained["w1"], ONES)  # no gradient passes saturated sigmoids


def test_gradients_share_forward_and_backward_code() -> None:
    layer = outlined_function(lambda x, w: jnp.tanh(x @ w))

    def chain(x: Any, w: Any, layer: Any) -> Any:
        return jnp.sum(layer(layer(layer(x, w), w), w))

    x, w = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    found = ipu.compile(jax.grad(lambda x, w: chain(x, w, layer), (0, 1)))(x, w)
    expected = jax.grad(chain, (0, 1))(x, w, lambda x, w: jnp.tanh(x @ w))
    for mine, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-4)
    blocks = calls(jax.grad(lambda x, w: chain(x, w, layer), (0, 1)), x, w)
    forward, backward = blocks[:3], blocks[3:]
    for shared in (forward, backward):
        assert len(shared) == 3
        assert len({id(eqn.params["jaxpr"]) for eqn in shared}) == 1


@pytest.mark.fact("functional.serialized_lookup")
def test_a_lookup_in_parts_of_a_table() -> None:
    rows, width, parts = 20_000, 128, 10
    part = rows // parts

    @outlined_function(keep_input_layouts=False)
    def lookup(table: Any, indices: Any, low: Any, high: Any) -> Any:
        found = ipu.embedding_ops.embedding_lookup(table, indices - low)
        inside = (indices >= low) & (indices < high)
        return found * inside[:, None].astype(jnp.float16)

    def body(table: Any, indices: Any) -> Any:
        pieces = [
            lookup(table[low : low + part], indices, low, low + part)
            for low in range(0, rows, part)
        ]
        return sum(pieces[1:], pieces[0])

    table = np.random.default_rng(0).integers(0, 99, (rows, width)).astype(np.float16)
    indices = np.arange(0, rows, part // 2, dtype=np.int32)
    np.testing.assert_array_equal(ipu.compile(body)(table, indices), table[indices])


@pytest.mark.fact("functional.structure")
def test_results_keep_their_structure() -> None:
    scale = jnp.float32(3.0)  # of the function's closure

    def both(x: Any, y: Any) -> Any:
        return {"sum": x + y, "rest": [scale * x, None, (y,)]}

    for function in (outlined_function(both), outlined_function()(both)):
        out = ipu.compile(lambda x, y, function=function: function(x, y))(1.0, 2.0)
        assert out == {"sum": 3.0, "rest": [3.0, None, (2.0,)]}
        with pytest.raises(TypeError, match="keyword arguments"):
            function(x=1.0, y=2.0)


@pytest.mark.fact("functional.no_gradient")
def test_a_gradient_that_is_not_there() -> None:
    @jax.custom_vjp
    def first(a: Any, b: Any) -> Any:
        return a

    first.defvjp(lambda a, b: (a, b), lambda b, dy: (None, dy - b))
    function = outlined_function(lambda lhs, rhs: first(lhs, rhs))

    def body(a: Any, w: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(function(a, w)))(w)

    np.testing.assert_array_equal(ipu.compile(body)(ONES, ONES), 0 * ONES)


def test_calls_of_several_types() -> None:
    function = outlined_function(jax.nn.relu)
    halves = ONES.astype(np.float16)
    a, b, c = ipu.compile(lambda a, b, c: (function(a), function(b), function(c)))(
        halves, -halves, ONES
    )
    assert (a.dtype, b.dtype, c.dtype) == (np.float16, np.float16, np.float32)
    np.testing.assert_array_equal(a, ONES)
    np.testing.assert_array_equal(b, 0 * ONES)


def test_each_call_draws_its_own_numbers() -> None:
    drop = outlined_function(lambda x: ipu.rand_ops.dropout(x, rate=0.5))
    first, second = ipu.compile(lambda x: (drop(x), drop(x)))(ONES)
    assert not np.array_equal(first, second)


# --- code in reports ---------------------------------------------------------------------------


def block(x, w):
    return jnp.tanh(x @ w) @ w


def code_of(function, *, ipus=1, calls=5, form=None):
    """Bytes of code in a report of a program that calls a function, without graph outlining."""
    configured(ipus, optimizations__enable_graph_outlining=False)

    def program(x, w):
        for _ in range(calls):
            x = function(x, w)
        return x

    argument = struct(64, 64)
    chosen: Any = program if form is None else form(program)
    run: Any = ipu.compile(chosen)
    report = run.lower(argument, argument).report()
    categories = report.memory.by_category
    return sum(categories[name] for name in ("vertex_state", "control_code", "exchange_code"))


def looped(program):
    return lambda x, w: ipu.loops.repeat(3, lambda x: program(x, w), [x])


def differentiated(program):
    return jax.grad(lambda x, w: program(x, w).sum(), argnums=(0, 1))


def recomputed(program):
    return differentiated(jax.checkpoint(program))


def among_replicas(program):
    return lambda x, w: ipu.cross_replica_ops.cross_replica_sum(program(x, w))


@pytest.mark.parametrize(
    ("form", "ipus"),
    [(None, 1), (looped, 1), (differentiated, 1), (recomputed, 1), (among_replicas, 2)],
)
def test_code_is_there_once_without_graph_outlining(form, ipus):
    shared = [
        code_of(outlined_function(block), calls=calls, form=form, ipus=ipus) for calls in (3, 9)
    ]
    copied = [code_of(block, calls=calls, form=form, ipus=ipus) for calls in (3, 9)]
    assert copied[1] > 2.5 * copied[0]
    assert shared[1] < 1.2 * shared[0]  # calls of it, and sums of derivatives
    assert shared[1] < copied[1] / 2


def test_code_of_two_outlined_functions_is_there_twice():
    one, other = outlined_function(block), outlined_function(lambda x, w: jnp.tanh(x @ w) @ w)
    once = code_of(one, calls=4)
    twice = code_of(lambda x, w: other(one(x, w), w), calls=2)
    assert 1.3 * once < twice < 2.2 * once


def test_outlining_shares_code_with_what_is_around():
    configured(optimizations__enable_graph_outlining=True)
    report = ipu.compile(lambda x, w: outlined_function(block)(block(x, w), w))
    marked = report.lower(struct(64, 64), struct(64, 64)).report().memory.by_category
    plain = ipu.compile(lambda x, w: block(block(x, w), w))
    unmarked = plain.lower(struct(64, 64), struct(64, 64)).report().memory.by_category
    assert marked["vertex_state"] == unmarked["vertex_state"]


def test_stages_of_a_pipeline_share_code_on_one_ipu():
    shared = []
    for function in (outlined_function(block), block):
        configured(1, optimizations__enable_graph_outlining=False)
        feed, out = infeed([np.ones((64, 64), np.float32)] * 8), outfeed()

        def stage(x, function=function):
            return function(function(x, x), x)

        train = lambda feed=feed, out=out, stage=stage: ipu.pipelining_ops.pipeline(  # noqa: E731
            [stage, stage], 4, infeed_queue=feed, outfeed_queue=out, device_mapping=[0, 0]
        )
        categories = ipu.compile(train).lower().report().memory.by_category
        shared.append(categories["vertex_state"] + categories["control_code"])
    assert shared[0] < 0.5 * shared[1]
