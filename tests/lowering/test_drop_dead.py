from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering import streams
from lowering.jaxpr import run_equations
from lowering.passes.drop_dead import drop_dead
from tests.lowering.samples import Queue, V, jaxpr_text, trace


def test_unread_results_go(golden):
    def fn(x):
        jnp.cos(jnp.tan(x))
        streams.enqueue(Queue("q"), [jnp.exp(x)], None)
        jax.debug.print("{}", x * 2)
        return jnp.sin(x)

    golden(jaxpr_text(drop_dead(trace(fn, V))))


def test_live_programs_are_not_touched():
    closed = trace(lambda x: (jnp.sin(x), x), V)
    assert drop_dead(closed) is closed


def test_results_and_constants_stay():
    table = jnp.arange(3.0)

    def fn(x):
        jnp.dot(table, x)
        return x + table, 3

    closed = drop_dead(trace(fn, V))
    first, second = run_equations(closed.jaxpr, closed.consts, [jnp.ones(3)])
    assert (first.tolist(), int(second)) == ([1.0, 2.0, 3.0], 3)
