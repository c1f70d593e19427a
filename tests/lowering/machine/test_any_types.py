"""The model takes every element type that JAX has, scalars, and arrays without elements."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from lowering.machine import Shape
from tests.lowering.machine.samples import check_liveness, kernel, modelled
from tests.lowering.samples import lowered

KEYS = tuple(jax.random.key(0, impl=impl).dtype for impl in ("threefry2x32", "rbg", "unsafe_rbg"))
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOATS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
NUMBERS = (*INTEGERS, *FLOATS, "complex64")
TYPES = ("bool", *NUMBERS, *KEYS)
DIMS = ((), (0,), (7,), (3, 4), (0, 4), (2, 1, 3))


def rank(x):
    return len(x.shape)


LAYOUT = {
    "transpose": lambda x: x.transpose(range(rank(x))[::-1]),
    "reshape": lambda x: x.reshape(x.shape[::-1]),
    "flat": lambda x: x.reshape(-1),
    "more": lambda x: x[None],
    "repeat": lambda x: jnp.broadcast_to(x, (3, *x.shape)),
    "half": lambda x: x[: x.shape[0] // 2] if rank(x) else x,
    "rev": lambda x: lax.rev(x, range(rank(x))),
    "join": lambda x: jnp.concatenate([x.reshape(-1)] * 2),
    "stack": lambda x: jnp.stack([x, x]),
    "choose": lambda x: jnp.where(jnp.zeros(x.shape, bool), x, x),
    "loop": lambda x: lax.scan(lambda c, _: (c, c), x, length=2)[1],
    "branch": lambda x: lax.cond(True, lambda x: x.reshape(-1), lambda x: x.reshape(-1), x),
    "rows": lambda x: x.reshape(-1)[jnp.zeros((2,), int) if x.size else jnp.zeros((0,), int)],
}
ARITHMETIC = {
    "add": lambda x: x + x,
    "product": lambda x: x * x,
    "equal": lambda x: x == x,
    "cast": lambda x: jnp.real(x).astype("float16"),
    "bytes": lambda x: (x != 0).astype("int8"),
    "sum": lambda x: x.sum(),
    "running": lambda x: jnp.cumsum(x.reshape(-1)),
    "matrix": lambda x: x.reshape(-1, 1) @ x.reshape(1, -1),
    "power": lambda x: lax.integer_pow(x, 3),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_and_copies_of_every_type(dtype) -> None:
    for dims in DIMS:
        x = jax.ShapeDtypeStruct(dims, dtype)
        for name, fn in LAYOUT.items():
            found = kernel(fn, x)
            assert found.cycles >= 0, (name, dims)
            sizes = [laid.mapping.elements for laid in found.operands]
            assert sizes == [x.size], (name, dims)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_arithmetic_of_every_type(dtype: str) -> None:
    for dims in DIMS:
        x = jax.ShapeDtypeStruct(dims, dtype)
        for name, fn in ARITHMETIC.items():
            found = kernel(fn, x)
            assert all(total.source == "formula" for total in found.totals.values()), name
            assert found.cycles > 0 or x.size <= 1 or name == "cast", name


@pytest.mark.parametrize("name", [*NUMBERS, "float64", "int64", "complex128", "int4", "uint2"])
def test_an_element_has_its_bytes(name: str) -> None:
    assert Shape((), name).element_bytes == jnp.dtype(name).itemsize


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_a_key_has_its_words(impl: str) -> None:
    key = jax.random.key(0, impl=impl)
    assert Shape((), str(key.dtype)).element_bytes == jax.random.key_data(key).nbytes


def test_gradients_of_integers_have_no_number() -> None:
    def loss(x, n):
        return (x * n).sum()

    both = jax.grad(loss, argnums=(0, 1), allow_int=True)
    x, n = jax.ShapeDtypeStruct((4,), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.int32)
    assert modelled(lowered(both, x, n)).cycles > 0
    assert kernel(both, x, n).cycles > 0


def steps():
    return st.lists(st.sampled_from([*LAYOUT.items(), *ARITHMETIC.items()]), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps(), st.sampled_from([*INTEGERS, "float16", "float32", "complex64"]), st.sampled_from(DIMS)
)
def test_reports_of_chains(chain, dtype, dims) -> None:
    def fn(x):
        for _, step in chain:
            x = step(x)
        return x

    x = jax.ShapeDtypeStruct(dims, dtype)
    assert kernel(fn, x).cycles >= 0
    found = modelled(lowered(fn, x))
    assert found.cycles >= 0
    check_liveness(found)
