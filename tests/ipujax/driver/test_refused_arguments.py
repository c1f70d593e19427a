"""What a compiled function says of arguments that are no arrays."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError
from tests.ipujax.feeding import configure


def first(x: Any, options: Any = None) -> Any:
    return x


@pytest.mark.parametrize("engine", ["auto", "replay"])
@pytest.mark.parametrize("way", ["call", "lower", "trace"])
@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("text",), {}, r"args\[0\] of `first` is of type str"),
        ((1.0, {"a": [2, object()]}), {}, r"args\[1\]\['a'\]\[1\] of `first` is of type object"),
        ((1.0,), {"options": {"b": len}}, r"kwargs\['options'\]\['b'\] of `first` is of type"),
    ],
)
def test_what_is_no_array_is_named_by_its_path(
    engine: str, way: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    configure(1)
    run = ipu.compile(first, engine=engine)
    function = run if way == "call" else getattr(run, way)
    with pytest.raises(ConfigTypeError, match=message) as caught:
        function(*args, **kwargs)
    assert "static_argnums" in str(caught.value)
    assert f"where: {__file__}" in str(caught.value)
    np.testing.assert_array_equal(run(np.arange(3)), np.arange(3))


def test_constants_may_be_anything() -> None:
    configure(1)
    run = ipu.compile(first, static_argnames="options")
    assert run(2.0, options="text") == 2.0
    with pytest.raises(ConfigTypeError, match=r"args\[0\] of `first` is of type str"):
        run("text", options="text")


def test_a_module_of_equinox_is_split_as_the_error_says() -> None:
    configure(1)
    module = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))
    x = jnp.ones((5, 4))
    with pytest.raises(ConfigTypeError, match=r"args\[0\]\.activation .*custom_jvp") as caught:
        ipu.compile(lambda module, x: jax.vmap(module)(x))(module, x)
    assert "eqx.partition(module, eqx.is_array)" in str(caught.value)
    arrays, rest = eqx.partition(module, eqx.is_array)
    run = ipu.compile(lambda arrays, x: jax.vmap(eqx.combine(arrays, rest))(x))
    np.testing.assert_allclose(run(arrays, x), jax.vmap(module)(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lowr", "did you mean 'lower'?"),
        ("report", "lower it for arguments first"),
        ("xyzzy", "has no attribute 'xyzzy'\n"),
    ],
)
def test_an_attribute_that_compiled_functions_do_not_have(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ipu.compile(first), name)
    assert hint in f"{caught.value}\n"
