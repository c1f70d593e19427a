"""Serialized products against plain ones: values, derivatives, and what they save."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.math_ops import serialized_matmul

DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")
# Shapes of a and b before transpositions, which of them are transposed, and the factor.
FACTS = {
    "a_columns": [
        ((8, 16), (16, 5), False, False, 2),
        ((32, 8), (1, 8), False, True, 2),
        ((4, 8), (4, 4), True, False, 2),
        ((64, 32), (128, 64), True, True, 8),
    ],
    "a_rows_b_columns": [
        ((4, 21), (21, 8), False, False, 3),
        ((4, 72), (1, 72), False, True, 2),
        ((4, 8), (4, 4), True, False, 2),
        ((4, 5), (5, 4), True, True, 4),
    ],
    "b_rows": [
        ((4, 4), (4, 8), False, False, 2),
        ((4, 4), (44, 4), False, True, 2),
        ((4, 8), (4, 4), True, False, 2),
        ((4, 5), (8, 4), True, True, 4),
    ],
}
CASES = [(dimension, *case) for dimension, cases in FACTS.items() for case in cases]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def swapped(x: Any, swap: bool) -> Any:
    return jnp.swapaxes(x, -1, -2) if swap else x


@pytest.mark.sampled(2)
@pytest.mark.fact("math.serialized_equal")
@pytest.mark.parametrize(("dimension", "a", "b", "swap_a", "swap_b", "factor"), CASES)
@pytest.mark.parametrize(("batch_a", "batch_b"), [((), ()), ((3,), ()), ((2, 1), (2, 3))])
def test_equals_a_plain_product(
    dimension: str,
    a: Any,
    b: Any,
    swap_a: bool,
    swap_b: bool,
    factor: int,
    batch_a: Any,
    batch_b: Any,
) -> None:
    left, right = normal(*batch_a, *a), normal(*batch_b, *b, seed=1)
    plain = jnp.matmul(swapped(left, swap_a), swapped(right, swap_b))
    for parts in (factor, 1):
        out = serialized_matmul(left, right, parts, dimension, swap_a, swap_b)
        np.testing.assert_allclose(out, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dimension", "a", "b", "swap_a", "swap_b", "factor"), CASES)
@pytest.mark.parametrize(("batch_a", "batch_b"), [((2,), ()), ((), (3,)), ((3,), (3,))])
def test_gradients_in_every_transposition(
    dimension: str,
    a: Any,
    b: Any,
    swap_a: bool,
    swap_b: bool,
    factor: int,
    batch_a: Any,
    batch_b: Any,
) -> None:
    left, right = normal(*batch_a, *a), normal(*batch_b, *b, seed=1)

    def ours(a: Any, b: Any) -> Any:
        return jnp.sum(serialized_matmul(a, b, factor, dimension, swap_a, swap_b))

    def theirs(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.matmul(swapped(a, swap_a), swapped(b, swap_b)))

    found = jax.grad(ours, (0, 1))(left, right)
    for mine, other in zip(found, jax.grad(theirs, (0, 1))(left, right), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4, rtol=1e-4)


@pytest.mark.fact("math.dims_meaning")
@pytest.mark.parametrize(("dimension", "extent"), list(zip(DIMENSIONS, (2, 3, 5), strict=True)))
def test_the_factor_divides_one_dimension(dimension: str, extent: int) -> None:
    a, b = normal(2, 3), normal(3, 5)
    for factor in (2, 3, 5):
        if factor == extent:
            out = serialized_matmul(a, b, factor, dimension)
            np.testing.assert_allclose(out, a @ b, atol=1e-5)
            continue
        with pytest.raises(OperatorError, match=f"which is {extent}") as info:
            serialized_matmul(a, b, factor, dimension)
        assert isinstance(info.value, ValueError)


@pytest.mark.exhaustive
@hypothesis.given(
    st.sampled_from(DIMENSIONS),
    st.integers(1, 3),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    st.lists(st.integers(1, 2), max_size=2),
)
@hypothesis.settings(max_examples=10)
def test_integers_are_exact(dimension: str, factor: int, extents: Any, batch: Any) -> None:
    m, k, n = (factor * extent for extent in extents)
    a = np.arange(np.prod([*batch, m, k])).reshape(*batch, m, k).astype(np.int32)
    b = np.arange(k * n).reshape(k, n).astype(np.int32)
    out = serialized_matmul(a, b, factor, dimension)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, np.matmul(a, b))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_derivatives(dimension: str) -> None:
    a, b = normal(2, 4, 8), normal(6, 8, seed=1)
    weights = normal(2, 4, 6, seed=2)

    def ours(a: Any, b: Any) -> Any:
        return jnp.sum(weights * jnp.sin(serialized_matmul(a, b, 2, dimension, False, True)))

    def theirs(a: Any, b: Any) -> Any:
        return jnp.sum(weights * jnp.sin(jnp.matmul(a, b.T)))

    for transform in (jax.grad, jax.jacfwd):
        found = ipu.compile(transform(ours, (0, 1)))(a, b)
        for mine, other in zip(found, transform(theirs, (0, 1))(a, b), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_halves_and_vmap(dimension: str) -> None:
    a, b = normal(3, 4, 64).astype(np.float16), normal(64, 6, seed=1).astype(np.float16)

    def one(a: Any) -> Any:
        return serialized_matmul(a, b, 2, dimension, name="product")

    out = ipu.compile(jax.vmap(one))(a)
    assert out.dtype == np.float16
    plain = np.matmul(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_allclose(out, plain, atol=2e-2)
    mapped = jax.vmap(lambda b: serialized_matmul(a[0], b, 2, dimension), 1, 1)(b[:, None, :])
    np.testing.assert_allclose(mapped, plain[0][:, None], atol=2e-2)


def loops(jaxpr: Any) -> list[Any]:
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_forward_and_backward_are_loops(dimension: str) -> None:
    a, b = normal(8, 16), normal(16, 32)

    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(serialized_matmul(a, b, 4, dimension))

    jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1)))(a, b).jaxpr
    assert [eqn.params["length"] for eqn in loops(jaxpr)] == [4, 4]
    assert "dot_general" not in [eqn.primitive.name for eqn in jaxpr.eqns]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_needs_less_memory_than_a_plain_product(dimension: str) -> None:
    extents = {"a_columns": (8192, 512, 64), "a_rows_b_columns": (64, 8192, 512)}
    m, k, n = extents.get(dimension, (64, 512, 8192))
    a, b = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((m, k), (k, n)))

    def peak(product: Any, backward: bool) -> int:
        def loss(a: Any, b: Any) -> Any:
            return jnp.sum(product(a, b) ** 2)

        fn = jax.grad(loss, (0, 1)) if backward else product
        report = ipu.compile(fn).lower(a, b).compile().report()
        assert report.default_share < 0.1
        return int(report.memory.tile_peak_bytes.max())

    def serialized(a: Any, b: Any) -> Any:
        return serialized_matmul(a, b, 8, dimension)

    for backward in (False, True):
        assert peak(serialized, backward) < 0.9 * peak(jnp.matmul, backward)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: serialized_matmul(x, x, 2, "b_columns"), "no serialization_dimension"),
        (lambda x: serialized_matmul(x, x, 2, ["b_rows"]), "no serialization_dimension"),
        (lambda x: serialized_matmul(x[0], x, 2, "b_rows"), "the a of serialized_matmul"),
        (lambda x: serialized_matmul(x, x[:2], 2, "b_rows"), "do not multiply"),
        (lambda x: serialized_matmul(x, x.astype(np.int32), 2, "b_rows"), "cast one of them"),
        (lambda x: serialized_matmul(x > 0, x > 0, 2, "b_rows"), "is bool"),
        (lambda x: serialized_matmul(x, x, 0, "b_rows"), "is 0"),
        (
            lambda x: serialized_matmul(np.stack([x] * 2), np.stack([x] * 3), 2, "b_rows"),
            "do not fit in front of their matrices",
        ),
    ],
)
def test_bad_values(call: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        call(normal(4, 4))


@pytest.mark.parametrize(("factor", "swap"), [(2.0, False), (2, 1)])
def test_bad_types(factor: Any, swap: Any) -> None:
    with pytest.raises(ConfigTypeError):
        serialized_matmul(normal(4, 4), normal(4, 4), factor, "b_rows", swap)
