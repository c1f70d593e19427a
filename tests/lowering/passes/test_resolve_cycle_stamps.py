from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ops
from lowering.jaxprs import ClosedJaxpr, function_of_jaxpr, inline_jitted_calls
from lowering.passes import resolve_cycle_stamps
from tests.lowering.samples import V, trace


def count_equations(closed: ClosedJaxpr) -> int:
    return 10 * len(closed.jaxpr.eqns)


def readings(fn, count=count_equations):
    closed = resolve_cycle_stamps(inline_jitted_calls(trace(fn, V)), count)
    assert "ipu_cycle_stamp" not in str(closed)
    return [int(each) for each in function_of_jaxpr(closed)(jnp.ones(V.shape, V.dtype))]


def three(x):
    x = jnp.sin(x)
    first = ops.read_modelled_clock()
    x = jnp.cos(jnp.exp(x))
    second = ops.read_modelled_clock()
    x = x * 2
    return first, second, ops.read_modelled_clock(first), x.sum()


def test_readings_count_from_the_beginning_or_from_an_earlier_one():
    assert readings(three)[:3] == [10, 30, 30]
    assert readings(jax.jit(three))[:3] == [10, 30, 30]


def test_without_a_model_the_clock_stands_still():
    assert readings(three, None)[:3] == [0, 0, 0]
    assert [int(each) for each in three(jnp.ones(3))[:3]] == [0, 0, 0]


@pytest.mark.parametrize("length", [1, 4])
def test_bodies_of_loops_have_clocks_of_their_own(length):
    def body(carry, _):
        start = ops.read_modelled_clock()
        carry = jnp.sin(carry)
        return carry, ops.read_modelled_clock(start)

    def fn(x):
        _, counts = lax.scan(body, jnp.cos(x), None, length=length)
        return [*counts, ops.read_modelled_clock()]

    *counts, last = readings(fn)
    assert counts == [10] * length
    assert last >= 10 * 2  # cos and scan, and what takes the counts apart


def test_readings_wrap_at_32_bits():
    assert readings(three, lambda _: 2**32 + 5)[0] == 5
