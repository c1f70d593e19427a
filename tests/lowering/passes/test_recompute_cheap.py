"""What backward passes outside pipelines compute again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering import size_in_bytes
from lowering.jaxprs import function_of_jaxpr, walk_equations
from lowering.passes import drop_dead, recompute_cheap
from tests.ipujax.reporting import configured, struct
from tests.lowering.samples import jaxpr_text, trace

WIDTH, BATCH = 64, 2048
WEIGHTS = [struct(WIDTH, WIDTH)] * 3
DEEP = 3 * WEIGHTS
ROWS = struct(BATCH, WIDTH)


def recompute(closed):
    return recompute_cheap(closed, everywhere=True)


def normed(x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def loss(weights, x):
    for w in weights:
        x = jax.nn.silu(jax.nn.gelu(normed(x @ w)))
    return (x**2).mean()


def step(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value


def dropped(weights, x):
    def function(weights):
        key = jax.random.key(7)
        y = jax.nn.gelu(x @ weights[0])
        return jnp.sum(jnp.where(jax.random.bernoulli(key, 0.5, y.shape), y, 0) @ weights[1])

    return jax.grad(function)(weights)


def twice(weights, x):
    return step(step(weights, x)[0], x)


def looped(weights, x):
    return lax.fori_loop(0, 3, lambda _, w: step(w, x)[0], weights)


def test_text(golden):
    def one(w, x):
        return jax.grad(lambda w: jnp.sum(jax.nn.silu(x @ w) ** 2))(w)

    golden(jaxpr_text(recompute(drop_dead(trace(one, struct(4, 4), struct(2, 4))))))


def operands(avals):
    rng = np.random.default_rng(3)
    return [rng.normal(size=aval.shape).astype(aval.dtype) / 8 for aval in jax.tree.leaves(avals)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", [step, dropped, twice, looped])
def test_numbers_stay(function):
    closed = drop_dead(trace(function, WEIGHTS, struct(8, WIDTH)))
    again = recompute(closed)
    assert count(again, "optimization_barrier")
    given = operands((WEIGHTS, struct(8, WIDTH)))
    wanted, found = (jax.jit(function_of_jaxpr(each))(*given) for each in (closed, again))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def count(closed, *names):
    return sum(eqn.primitive.name in names for eqn in walk_equations(closed.jaxpr))


def test_draws_products_and_sums_are_not_repeated():
    for function in (step, dropped):
        closed = drop_dead(trace(function, WEIGHTS, ROWS))
        again = recompute(closed)
        for name in ("random_bits", "threefry2x32", "dot_general", "reduce_sum"):
            assert count(again, name) == count(closed, name)


def test_of_layers_with_norms_two_values_wait():
    closed = drop_dead(trace(step, WEIGHTS, ROWS))
    again = recompute(closed)
    rows = size_in_bytes(ROWS)
    barriers = [e for e in again.jaxpr.eqns if e.primitive.name == "optimization_barrier"]
    large = [e for e in barriers if size_in_bytes(e.invars[0].aval) == rows]
    assert len(large) == len(WEIGHTS)  # beside the inputs of layers: what goes into each norm


def test_a_function_without_derivatives_stays():
    closed = trace(loss, WEIGHTS, ROWS)
    assert recompute(closed) is closed


@pytest.mark.exhaustive
def test_xla_takes_both_runs_for_two():
    closed = drop_dead(trace(step, WEIGHTS, ROWS))
    avals = [*WEIGHTS, ROWS]
    before, after = (
        jax.jit(function_of_jaxpr(each)).lower(*avals).compile()
        for each in (closed, recompute(closed))
    )
    costs: list[Any] = [compiled.cost_analysis() for compiled in (before, after)]
    assert costs[1]["transcendentals"] > 1.5 * costs[0]["transcendentals"]


def repeated(weights, x):
    return ipu.loops.repeat(3, lambda *weights: step(weights, x)[0], weights)


@pytest.mark.parametrize("function", [step, repeated])
def test_models_need_less_memory_and_more_cycles(function: Any):
    profiles, results = [], []
    given = operands((WEIGHTS, struct(8, WIDTH)))
    for allowed in (False, True):
        configured(1, allow_recompute=allowed)
        compiled: Any = ipu.compile(function)
        profiles.append(compiled.lower(DEEP, struct(4 * BATCH, WIDTH)).report())
        results.append(jax.tree.leaves(compiled(given[:-1], given[-1])))
    before, after = profiles
    assert after.memory.peak_bytes[0] < 0.75 * before.memory.peak_bytes[0]
    assert before.cycles < after.cycles < 1.5 * before.cycles
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_random_masks_of_the_device_stay_with_recomputation():
    def function(weights, x):
        def masked(w):
            return jnp.sum(ipu.rand_ops.dropout(jnp.tanh(x @ w), rate=0.5) ** 2)

        return jax.grad(masked)(weights[0])

    given, found = operands((WEIGHTS, struct(8, WIDTH))), []
    for allowed in (False, True):
        configured(1, allow_recompute=allowed)
        ipu.utils.reset_ipu_seed(5)
        found.append(ipu.compile(function)(given[:-1], given[-1]))
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)
    assert np.any(found[0])
