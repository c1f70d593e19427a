"""Outlined functions: shared code, where it runs, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.functional_ops import outlined_function
from ipujax.sharding import has_attr


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


@pytest.mark.parametrize("result", [None, (), {}])
def test_a_function_returns_an_array(result: Any) -> None:
    with pytest.raises(ValueError, match="without an array"):
        outlined_function(lambda x: result)(1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"func": 3}, "func is 3"),
        ({"unique_sharding": 1}, "unique_sharding is 1"),
        ({"keep_input_layouts": "yes"}, "keep_input_layouts is 'yes'"),
        ({"name": 4}, "name is 4"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        outlined_function(**arguments)
