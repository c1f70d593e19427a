"""Stages that are scans keep the fewest bytes of each iteration, and compute the same gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.jaxprs import function_of_jaxpr, size_in_bytes, trace_flat
from lowering.pipelines import StageDerivative, differentiate_stage

LAYERS, ROWS, WIDTH = 4, 16, 32
HALF, SINGLE = jnp.float16, jnp.float32
RANDOM = np.random.default_rng(3)


def array(*shape: int, dtype: Any = SINGLE) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape) / 4, dtype)


def normed(x: Any, scale: Any) -> Any:
    """Groups of eight, in single precision."""
    h = x.astype(SINGLE).reshape(ROWS, WIDTH // 8, 8)
    mean = h.mean((0, 2), keepdims=True)
    variance = ((h - mean) ** 2).mean((0, 2), keepdims=True)
    return ((h - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape).astype(x.dtype) * scale


def halves(stage: Callable[..., Any], *args: Any, constant: Sequence[int]) -> StageDerivative:
    """Of a stage, all of whose gradients are equal to those of JAX."""
    closed = trace_flat(lambda *flat: jax.tree.leaves(stage(*flat)), [*map(jax.typeof, args)])
    seeds = [*range(len(closed.out_avals))]
    found = differentiate_stage(
        closed, gradients=[*range(len(args))], cotangents=seeds, constant_operands={*constant}
    )
    results, pullback = jax.vjp(lambda *flat: tuple(jax.tree.leaves(stage(*flat))), *args)
    cotangents = [array(*result.shape, dtype=result.dtype) for result in results]
    made = function_of_jaxpr(found.forward)(*args)
    kept = [args[i] for i in found.kept]
    gradients = function_of_jaxpr(found.backward)(*kept, *made[len(results) :], *cotangents)
    for mine, theirs in zip(gradients, pullback(tuple(cotangents)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(made, results, strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    return found


def residual_bytes(found: StageDerivative) -> int:
    avals = found.forward.out_avals[len(found.forward.out_avals) - found.residuals :]
    return sum(map(size_in_bytes, avals))


def test_what_waits_of_normed_layers_is_their_inputs_and_statistics() -> None:
    def stage(x: Any, up: Any, down: Any, scale: Any) -> Any:
        def block(x: Any, layer: Any) -> Any:
            up, down, scale = layer
            return x + jax.nn.gelu(normed(x, scale) @ up) @ down, None

        return lax.scan(block, x, (up, down, scale))[0]

    weights = [
        array(LAYERS, WIDTH, 4 * WIDTH, dtype=HALF),
        array(LAYERS, 4 * WIDTH, WIDTH, dtype=HALF),
    ]
    found = halves(
        stage,
        array(ROWS, WIDTH, dtype=HALF),
        *weights,
        jnp.ones((LAYERS, WIDTH), HALF),
        constant=[1, 2, 3],
    )
    layer = 2 * ROWS * WIDTH + 2 * ROWS * 4 * WIDTH  # what goes in, and what gelu is given
    statistics = 2 * 4 * (WIDTH // 8)  # mean and variance of each group
    assert residual_bytes(found) == LAYERS * (layer + statistics)


def test_layers_without_products_wait_for_nothing_but_what_goes_in() -> None:
    def stage(x: Any, scales: Any) -> Any:
        return lax.scan(lambda x, s: (jnp.tanh(jnp.sin(x * s) * jnp.exp(s)), None), x, scales)[0]

    found = halves(stage, array(ROWS, WIDTH), array(LAYERS, WIDTH), constant=[1])
    assert residual_bytes(found) == LAYERS * 4 * ROWS * WIDTH


def body(x: Any, element: Any) -> Any:
    y = jnp.tanh(x @ element)
    return jnp.sin(y) * y, jnp.cos(y)


@pytest.mark.parametrize(
    "stage",
    [
        lambda x, w: lax.scan(body, x, w),
        lambda x, w: lax.scan(body, x, w, reverse=True),
        lambda x, w: lax.scan(body, x, w, unroll=2),
        lambda x, w: lax.scan(jax.checkpoint(body), x, w),
        lambda x, w: lax.scan(jax.jit(body), x, w)[1],
        lambda x, w: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c @ w[i]) * c, x),
        lambda x, w: lax.scan(lambda c, e: (jnp.exp(c) * jnp.sin(e @ x.T) @ x, e), x, w)[0],
        lambda x, w: lax.scan(lambda c, e: (c, jnp.tanh(e * jnp.sum(x)) ** 2), 1.0, w)[1],
        lambda x, w: lax.scan(lambda c, e: (lax.scan(body, c, w)[0] @ e, None), x, w)[0],
        lambda x, w: lax.scan(body, lax.scan(body, x, w)[0], jnp.sin(w))[0],
        lambda x, w: (lambda y, s: y * jnp.sum(s * jnp.sin(s)))(*lax.scan(body, x, w)),
    ],
)
@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.sampled(8)
def test_gradients_are_those_of_jax(stage: Callable[..., Any], constant: Sequence[int]) -> None:
    halves(stage, array(8, 8), array(LAYERS, 8, 8), constant=constant)


def test_what_is_drawn_in_an_iteration_is_not_drawn_again() -> None:
    """One byte of each number is enough: whether it was dropped."""
    keys = jax.random.split(jax.random.key(0), LAYERS)

    def stage(x: Any) -> Any:
        def layer(x: Any, key: Any) -> Any:
            kept = jax.random.bernoulli(key, 0.5, x.shape)
            return jnp.where(kept, jnp.sin(x), 0), None

        return lax.scan(layer, x, keys)[0]

    found = halves(stage, array(ROWS, WIDTH), constant=[])
    assert residual_bytes(found) <= LAYERS * (4 + 1) * ROWS * WIDTH
    assert "random_bits" not in str(found.backward)
    assert "threefry" not in str(found.backward)
