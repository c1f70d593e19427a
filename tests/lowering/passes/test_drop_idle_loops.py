"""Loops of no iterations are gone, and everything else stays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import ipujax as ipu
from lowering.jaxprs import jaxpr
from lowering.passes import drop_idle_loops
from tests.lowering.samples import jaxpr_text, trace
from tests.numbers import same

X = np.arange(3, dtype=np.float32)


def scanned(length: int) -> Any:
    def fn(x: jax.Array) -> Any:
        def outer(carry: jax.Array, row: jax.Array) -> Any:
            def inner(carry: jax.Array, key: jax.Array) -> Any:
                io_callback(lambda _: None, None, carry, ordered=True)
                return jnp.sin(carry), (carry, key)

            keys = jax.random.split(jax.random.key(0), length)
            return lax.scan(inner, carry + row, keys)

        return lax.scan(outer, jnp.float32(2), x)

    return fn


def loops_of(body: jaxpr.Jaxpr) -> list[int]:
    own = [e.params["length"] for e in body.eqns if e.primitive.name == "scan"]
    inner = (inner for eqn in body.eqns for inner in jaxpr.sub_jaxprs(eqn))
    return own + [length for body in inner for length in loops_of(body)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("length", "left"), [(0, [3]), (1, [3, 1])])
def test_only_loops_of_no_iterations_go(length: int, left: list[int]) -> None:
    closed = trace(scanned(length), X)
    dropped = drop_idle_loops(closed)
    assert loops_of(closed.jaxpr) == [3, length]
    assert loops_of(dropped.jaxpr) == left
    assert list(map(str, dropped.out_avals)) == list(map(str, closed.out_avals))
    got = jax.jit(lambda x: jaxpr.run_equations(dropped.jaxpr, dropped.consts, [x]))(X)
    same(got, jax.tree.leaves(jax.jit(scanned(length))(X)))


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("own", [True, False])
def test_effects_of_a_loop_that_never_runs(engine: str, own: bool) -> None:
    def step(x: jax.Array) -> jax.Array:
        io_callback(lambda _: None, None, x, ordered=True)
        return x + 1

    def fn(x: jax.Array) -> jax.Array:
        if own:
            idle = ipu.loops.repeat(0, step, [x])
        else:
            idle = lax.fori_loop(1, 1, lambda _, x: step(x), x)
        return jnp.sin(x) + idle

    run = ipu.compile(fn, engine=engine)
    for _ in range(3):
        np.testing.assert_allclose(run(X), np.sin(X) + X, rtol=1e-6)


def test_the_text(golden: Any) -> None:
    golden(jaxpr_text(drop_idle_loops(trace(scanned(0), X))))
