"""Expressions over elements: values, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.custom_ops import codelet_expression_op
from ipujax.errors import ConfigTypeError, CustomOpError

f32, f16, i32 = np.float32, np.float16, np.int32


@pytest.mark.fact("custom_ops.expression")
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, ipu.compile])
def test_expression(wrap: Callable[..., Any]) -> None:
    a, b, c = np.arange(8.0, dtype=f32)[:, None], np.zeros(1, f32), np.arange(8.0, dtype=f32)[None]

    def function(a: Any, b: Any, c: Any) -> Any:
        return codelet_expression_op(lambda x, y, z: x * x + y * z, a, b, c), codelet_expression_op(
            abs, a
        )

    squares, same = wrap(function)(a, b, c)
    np.testing.assert_array_equal(squares, np.broadcast_to(a * a, (8, 8)))
    np.testing.assert_array_equal(same, a)


SHAPES = st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (4, 1, 3), (4, 2, 1)])


@settings(max_examples=20)
@given(shapes=st.tuples(SHAPES, SHAPES, SHAPES), dtype=st.sampled_from([f32, f16, i32]))
def test_expression_is_that_of_whole_arrays(shapes: Any, dtype: Any) -> None:
    def expression(x: Any, y: Any, z: Any) -> Any:
        return jnp.where(x > y, x * z, jnp.maximum(y, z) - x)

    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.integers(-4, 4, shape), dtype) for shape in shapes]
    both_ways = jax.jit(lambda *a: (codelet_expression_op(expression, *a), expression(*a)))
    found, wanted = both_ways(*arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_expression_takes_scalars_closures_and_jax_functions() -> None:
    factor = jnp.float32(3)

    def function(x: Any) -> Any:
        return codelet_expression_op(lambda x, y: factor * jax.nn.relu(x) ** y, x, 2)

    x = jnp.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(ipu.compile(function)(x), [0, 0.75, 12])
    np.testing.assert_allclose(jax.vmap(function)(x[None])[0], [0, 0.75, 12])
    assert codelet_expression_op(lambda x: x > 1, x).dtype == bool


def bad_branch(x: Any) -> Any:
    return x if x > 0 else -x


TABLE = jnp.arange(3.0)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda x: jnp.sum(x), "uses `reduce_sum`, which is no operation on elements"),
        (lambda x: jnp.sum(jnp.stack([x, x])), "no operation on elements"),
        (lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y * 2, x), "no operation on elements"),
        (lambda x: x[None], r"gives .*shape=\(1,\)"),
        (lambda x: (x, x), "gives .* for one element"),
        (bad_branch, "`bad_branch` decides by the value of an element"),
        (math.sin, "`sin` uses an element as a number of Python"),
        (lambda x: np.sin(x), "uses an element as a number of Python or NumPy"),
        (lambda x, y: x + y, "does not work on one element .*missing 1 required"),
        (lambda x: jnp.sum(x, axis=0), "does not work on one element .*axis 0 is out of bounds"),
        (lambda x: x + TABLE, r"gives .*shape=\(3,\)"),
        (lambda x: x + TABLE[1], "reads an array that is no argument|no operation on elements"),
    ],
)
def test_expressions_that_are_refused(expression: Any, message: str) -> None:
    with pytest.raises(CustomOpError, match=rf"(?s){message}.*test_codelet_expressions.py.*fix:"):
        codelet_expression_op(expression, jnp.ones(3))


@pytest.mark.parametrize(
    ("expression", "fix"),
    [(bad_branch, "jnp.where"), (math.sin, "jnp.sin for math.sin"), (lambda: 0, "per array")],
)
def test_what_to_do_about_it(expression: Any, fix: str) -> None:
    with pytest.raises(CustomOpError, match=f"fix: .*{fix}"):
        codelet_expression_op(expression, jnp.ones(3))


def test_arguments_of_expressions_that_are_refused() -> None:
    with pytest.raises(CustomOpError, match=r"do not broadcast: \(2,\), \(3,\)"):
        codelet_expression_op(lambda x, y: x + y, jnp.ones(2), jnp.ones(3))
    with pytest.raises(CustomOpError, match="got no array"):
        codelet_expression_op(lambda: 1)
    for nothing in (None, "text"):
        with pytest.raises(CustomOpError, match="expression_op cannot be an array"):
            codelet_expression_op(lambda x: x, nothing)
    with pytest.raises(ConfigTypeError, match="must be a function"):
        codelet_expression_op(3, jnp.ones(2))  # pyright: ignore


def test_expressions_have_no_gradient() -> None:
    def square(x: Any) -> Any:
        return codelet_expression_op(lambda x: x * x, x).sum()

    for derivative in (jax.grad(square), jax.jit(jax.grad(square)), ipu.compile(jax.grad(square))):
        with pytest.raises(CustomOpError, match=r"(?s)has no gradient.*test_codelet.*fix:.*stop"):
            derivative(jnp.ones(2))
    stopped = jax.grad(lambda x: x.sum() * square(jax.lax.stop_gradient(x)))
    np.testing.assert_array_equal(stopped(jnp.ones(2)), [2, 2])
