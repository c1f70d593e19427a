"""What a compiled function says of arguments that it does not take."""

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


@pytest.mark.parametrize("engine", ["auto", "replay"])
@pytest.mark.parametrize("way", ["call", "lower", "trace"])
@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1.0, 2.0), {}, "too many positional arguments"),
        ((1.0,), {"scale": 2.0, "power": 1}, "got an unexpected keyword argument 'power'$"),
        ((1.0,), {"scales": 2.0}, "keyword argument 'scales'; did you mean 'scale'"),
    ],
)
def test_a_call_that_the_signature_does_not_take_names_the_parameters(
    engine: str, way: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    def multiply(x: Any, *, scale: Any) -> Any:
        return x * scale

    configure(1)
    run = ipu.compile(multiply, engine=engine)
    function = run if way == "call" else getattr(run, way)
    with pytest.raises(ConfigTypeError, match=f"(?m)`multiply`: .*{message}") as caught:
        function(*args, **kwargs)
    assert "test_refused_arguments.py" in caught.value.where
    assert caught.value.fix == "call it as multiply(x, *, scale)"


def test_a_type_error_of_the_function_itself_stays() -> None:
    configure(1)
    with pytest.raises(TypeError, match="has no len") as caught:
        ipu.compile(lambda x: x + len(3))(1.0)  # pyright: ignore[reportArgumentType]
    assert not isinstance(caught.value, ipu.errors.IPUError)


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_an_array_that_has_been_donated_is_named_by_its_path(engine: str) -> None:
    def update(params: Any, gradient: Any) -> Any:
        return {"layers": [w - gradient for w in params["layers"]]}

    configure(1)
    run = ipu.compile(update, engine=engine, donate_argnums=0)
    params = {"layers": [jnp.ones(4), jnp.ones(4)]}
    run(params, 1.0)
    with pytest.raises(RuntimeError, match=r"params\['layers'\]\[0\] of `update`") as caught:
        run(params, 1.0)
    assert isinstance(caught.value, ipu.errors.FailedPreconditionError)
    assert "test_refused_arguments.py" in caught.value.where
    assert "pass what the last call returned" in caught.value.fix
