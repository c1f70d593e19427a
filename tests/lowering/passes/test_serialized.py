"""Products in parts give what whole ones give, and are what `serialized_matmul` makes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.math_ops import serialized_matmul
from lowering.jaxprs import function_of_jaxpr, user_line, walk_equations
from lowering.passes import serialized
from tests.lowering.samples import trace

DIMENSIONS = {"m": "a_columns", "k": "a_rows_b_columns", "n": "b_rows"}


def gradients(product):
    def loss(a, b):
        return jnp.sum(jnp.sin(product(jnp.tanh(a), b)))

    return jax.value_and_grad(loss, argnums=(0, 1))


def line_of_products(closed):
    (line,) = {
        user_line(e) for e in walk_equations(closed.jaxpr) if e.primitive.name == "dot_general"
    }
    return line


def signature(closed):
    """The products of a function and of its loops, by shapes."""
    return sorted(
        str([v.aval for v in (*eqn.invars, *eqn.outvars)])
        for eqn in walk_equations(closed.jaxpr)
        if eqn.primitive.name == "dot_general"
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6)])
@pytest.mark.parametrize("letter", DIMENSIONS)
def test_products_in_parts(letter, shape):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=each).astype(np.float32) for each in (shape, (6, 8)))
    whole = trace(gradients(lambda x, y: x @ y), a, b)
    line = line_of_products(whole)
    parts = serialized.serialize_products(whole, line, letter, 2)
    wanted, found = function_of_jaxpr(whole)(a, b), function_of_jaxpr(parts)(a, b)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    users = gradients(lambda x, y: serialized_matmul(x, y, 2, DIMENSIONS[letter]))
    assert signature(parts) == signature(trace(users, a, b))
    loops = [
        sum(e.primitive.name == "scan" for e in walk_equations(c.jaxpr)) for c in (whole, parts)
    ]
    assert loops == [0, 2]  # one for the product, one for both of its derivatives


def test_what_is_said_of_a_line():
    def two(x, y, z):
        return sum(one @ z for one in (x, y))

    closed = trace(two, jnp.ones((4, 6)), jnp.ones((10, 6))[:4], jnp.ones((6, 8)))
    product = serialized.find_product_at_line(closed, line_of_products(closed))
    assert product is not None
    assert product.shape == "float32[4,8]"
    assert product.largest == product.extents == {"m": 4, "k": 6, "n": 8}


def test_extents_divide_all_products_of_a_line():
    def two(x, y, z):
        return [one @ z for one in (x, y)]

    closed = trace(two, jnp.ones((12, 6)), jnp.ones((8, 6)), jnp.ones((6, 8)))
    product = serialized.find_product_at_line(closed, line_of_products(closed))
    assert product is not None
    assert product.shape == "float32[12,8]"
    assert product.largest == {"m": 12, "k": 6, "n": 8}
    assert product.extents == {"m": 4, "k": 6, "n": 8}


def test_what_is_no_product_of_matrices_stays():
    closed = trace(
        lambda x, y: jnp.einsum("abc,dbc->ad", x, y), jnp.ones((2, 3, 4)), jnp.ones((2, 3, 4))
    )
    assert serialized.find_product_at_line(closed, line_of_products(closed)) is None
    assert serialized.find_product_at_line(closed, "elsewhere.py:1 (f)") is None
