"""Lookups in tables on the device, against NumPy's and JAX's indexing, and the facts."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.embedding_ops import embedding_lookup
from ipujax.errors import ConfigTypeError, OperatorError
from tests.ipujax.feeding import configure


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def places(*shape: int, rows: int) -> Any:
    return np.random.default_rng(1).integers(0, rows, shape).astype(np.int32)


@pytest.mark.fact("embedding.gather")
def test_rows_of_a_large_table() -> None:
    table = np.arange(2400000, dtype=np.float32).reshape(12000, 200)
    ids = np.arange(8, dtype=np.int32)
    out = ipu.compile(embedding_lookup)(table, ids)
    assert out.shape == (8, 200)
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.fact("embedding.flatten")
def test_ids_have_any_shape() -> None:
    table, ids = normal(100, 16), places(3, 4, 2, rows=100)
    np.testing.assert_array_equal(ipu.compile(embedding_lookup)(table, ids), table[ids])


@pytest.mark.fact("embedding.serialized")
def test_lookups_in_parts_of_the_table() -> None:
    table, ids = normal(2000, 4, 4, 8, dtype=np.float16), places(4, 4, 8, rows=2000)
    out = ipu.compile(lambda t, i: embedding_lookup(t, i, serialization_factor=4))(table, ids)
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out, np.take(table, ids, axis=0))


@pytest.mark.fact("embedding.factor_min")
def test_there_is_at_least_one_part() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        embedding_lookup(normal(4, 2), [1], serialization_factor=0)


@hypothesis.given(
    ids=st.lists(st.integers(0, 11), min_size=4, max_size=4), factor=st.sampled_from([1, 3])
)
@hypothesis.settings(max_examples=10, deadline=None)
def test_values_and_gradients(ids: list[int], factor: int) -> None:
    table, own = normal(12, 3), np.array(ids, np.int32)
    weights = normal(len(ids), 3)

    def loss(table: Any) -> Any:
        rows = embedding_lookup(table, own, serialization_factor=factor)
        return jnp.sum(jnp.sin(rows) * weights)

    value, gradient = jax.value_and_grad(loss)(table)
    wanted = np.zeros_like(table)
    np.add.at(wanted, own, np.cos(table[own]) * weights)
    np.testing.assert_allclose(value, np.sum(np.sin(table[own]) * weights), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_parts_change_no_derivative() -> None:
    table, ids = normal(6, 2), np.array([5, 1, 1, 0], np.int32)

    def loss(table: Any, factor: int) -> Any:
        return jnp.sum(jnp.sin(embedding_lookup(table, ids, serialization_factor=factor)))

    whole, parts = (jax.hessian(loss)(table, factor) for factor in (1, 3))
    np.testing.assert_array_equal(parts, whole)
    gradient = str(jax.make_jaxpr(jax.grad(lambda t: loss(t, 3)))(table))
    assert gradient.count("= scatter-add") == 1
    along = np.ones_like(table)
    tangent = jax.jvp(lambda t: loss(t, 3), (table,), (along,))[1]
    np.testing.assert_allclose(tangent, np.cos(table[ids]).sum(), rtol=1e-5)


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_vmap_over_tables_and_ids(factor: int, dtype: Any) -> None:
    tables, ids = normal(3, 8, 2, dtype=dtype), places(3, 5, rows=8)

    def lookup(table: Any, ids: Any) -> Any:
        return embedding_lookup(table, ids, serialization_factor=factor)

    out = ipu.compile(jax.vmap(lookup))(tables, ids)
    np.testing.assert_array_equal(out, np.stack([t[i] for t, i in zip(tables, ids, strict=True)]))
    shared = jax.jit(jax.vmap(lookup, (None, 0)))(tables[0], ids)
    np.testing.assert_array_equal(shared, tables[0][ids])


@pytest.mark.parametrize("factor", [1, 2])
def test_ids_outside_stand_for_the_nearest_row(factor: int) -> None:
    table = normal(4, 2)
    run = jax.jit(lambda ids: embedding_lookup(table, ids, serialization_factor=factor))
    np.testing.assert_array_equal(run(np.array([-7, 99, 2], np.int32)), table[[0, 3, 2]])
    np.testing.assert_array_equal(run(np.array([2**32 - 1], np.uint32)), table[[3]])


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_ids_of_any_integer_type(dtype: str) -> None:
    table, ids = normal(300, 2), np.array([[3, 100]], dtype)
    np.testing.assert_array_equal(jax.jit(embedding_lookup)(table, ids), table[ids])


def test_tables_and_ids_of_any_rank() -> None:
    table = np.arange(25600, dtype=np.int32).reshape(32, 200, 4)
    for shape in ((), (0, 3), (8, 2)):
        ids = places(*shape, rows=32)
        for factor in (1, 4):
            out = embedding_lookup(table, ids, serialization_factor=factor)
            np.testing.assert_array_equal(out, table[ids])
    assert embedding_lookup(np.zeros((3, 0), np.float32), [1]).shape == (1, 0)


def test_sorted_ids_and_names() -> None:
    table, ids = normal(9, 2), np.array([0, 3, 3, 8], np.int32)

    def lookup(table: Any, ids: Any) -> Any:
        return embedding_lookup(table, ids, name="words", indices_are_sorted=True)

    lowered = ipu.compile(lookup).lower(table, ids)
    np.testing.assert_array_equal(ipu.compile(lookup)(table, ids), table[ids])
    text = str(jax.make_jaxpr(lookup)(table, ids).pretty_print(name_stack=True))
    assert "words" in text
    assert "indices_are_sorted=True" in text
    parts = lambda t, i: embedding_lookup(  # noqa: E731
        t, i, serialization_factor=3, indices_are_sorted=True
    )
    np.testing.assert_array_equal(jax.jit(parts)(table, ids), table[ids])
    gradient = str(jax.make_jaxpr(jax.grad(lambda t: parts(t, ids).sum()))(table))
    assert "indices_are_sorted=False" not in gradient
    assert lowered.report().default_share == 0


def test_forward_and_backward_are_modelled() -> None:
    configure(1)
    table, ids = normal(64, 8), places(16, rows=64)
    gradient = jax.grad(lambda table, ids: jnp.sum(embedding_lookup(table, ids) ** 2))
    report = ipu.compile(gradient).lower(table, ids).report()
    assert report.cycles > 0
    assert report.default_share < 0.05


@pytest.mark.parametrize(
    ("params", "ids", "arguments", "message"),
    [
        (np.float32(1), [0], {}, r"shape \[\].*first dimension"),
        (np.zeros((0, 3), np.float32), [0], {}, r"shape \[0, 3\]"),
        (np.zeros((4, 3), np.float32), [0.5], {}, "float.*integers"),
        (np.zeros((4, 3), np.float32), [1, 4], {}, "contain 4.*4 rows"),
        (np.zeros((4, 3), np.float32), [-1], {}, "contain -1"),
        (
            np.zeros((4, 3), np.float32),
            [1],
            {"serialization_factor": 3},
            "3.* must divide.*4 rows.*divisor",
        ),
    ],
)
def test_bad_input(params: Any, ids: Any, arguments: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=f"(?s){message}"):
        embedding_lookup(params, ids, **arguments)


def test_bad_types() -> None:
    with pytest.raises(ConfigTypeError, match="serialization_factor"):
        embedding_lookup(np.zeros((4, 3)), [1], serialization_factor=2.0)  # pyright: ignore
    with pytest.raises(ConfigTypeError, match="the params of embedding_lookup"):
        embedding_lookup(None, [1])
    with pytest.raises(ConfigTypeError, match="indices_are_sorted"):
        embedding_lookup(np.zeros((4, 3)), [1], indices_are_sorted=1)  # pyright: ignore
