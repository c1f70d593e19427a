from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.jaxprs import jaxpr
from lowering.passes import make_loop_conditions_scalar
from tests.lowering.samples import V, jaxpr_text, trace


def halved(x, limit):
    return lax.while_loop(lambda c: abs(c[0]) > limit, lambda c: (c[0] / 2, c[1] + 1), (x, 0))


def test_a_vmapped_loop(golden):
    golden(jaxpr_text(make_loop_conditions_scalar(trace(jax.vmap(lambda x: halved(x, 0.1)), V))))


def test_examples_that_are_done_keep_their_values():
    def fn(x, limits):
        inner = jax.jit(jax.vmap(halved))
        return lax.map(lambda row: inner(row, limits), x)

    x, limits = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0.5, 1, 9], np.float32)
    closed = make_loop_conditions_scalar(trace(fn, x, limits))
    got = jaxpr.run_equations(closed.jaxpr, closed.consts, [x, limits])
    for mine, theirs in zip(got, jax.tree.leaves(fn(x, limits)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_keys_and_constants_are_selected_too():
    steps = jnp.arange(3) + 1

    def fn(keys):
        def body(c):
            return jax.random.split(c[0])[0], c[1] + 1

        def one(key, limit):
            return lax.while_loop(lambda c: c[1] < limit, body, (key, 0))[0]

        return jax.random.key_data(jax.vmap(one)(keys, steps))

    keys = jax.random.split(jax.random.key(0), 3)
    closed = make_loop_conditions_scalar(trace(fn, keys))
    (got,) = jaxpr.run_equations(closed.jaxpr, closed.consts, [keys])
    np.testing.assert_array_equal(got, fn(keys))


def test_loops_of_one_condition_stay():
    closed = trace(lambda x: halved(x[0], 0.1), V)
    assert make_loop_conditions_scalar(closed) is closed
