"""Options that make one operation of several change time, and no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.config import IPUConfig
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.ipujax.feeding import infeed

RNG = np.random.default_rng(0)
WIDTH, ROWS, BATCH = 64, 40, 16
WEIGHTS = {
    "table": RNG.normal(size=(ROWS, WIDTH)).astype(np.float32) / 4,
    **{name: RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 16 for name in "qkv"},
}
ELEMENTS = [RNG.integers(0, ROWS, (3, BATCH)).astype(np.int32) for _ in range(4)]


def embed(weights: Any, indices: Any) -> Any:
    one, other, third = (jnp.take(weights["table"], row, axis=0) for row in indices)
    return jnp.tanh(one + other) * jnp.sin(third)


def attend(weights: Any, x: Any) -> Any:
    q, k, v = (x @ weights[name] for name in "qkv")
    return jnp.sum(((q @ k.T) @ v) ** 2)


def loss_of(weights: Any, indices: Any) -> Any:
    return attend(weights, embed(weights, indices))


def configured(ipus: int, **options: bool) -> None:
    config = IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in options.items():
        setattr(config.optimizations, name, value)
    config.configure_ipu_system()


def looped(weights: Any) -> Any:
    def step(weights: Any, indices: Any) -> Any:
        gradients = jax.grad(loss_of)(weights, indices)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients)

    return ipu.loops.repeat(len(ELEMENTS), step, [weights], infeed(ELEMENTS))


def pipelined(weights: Any) -> Any:
    return pipeline(
        [embed, attend],
        len(ELEMENTS),
        variables=weights,
        infeed_queue=infeed(ELEMENTS),
        outfeed_mask=[True],
        optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.01), loss),
    )


def by_hand(weights: Any, *, at_once: bool) -> Any:
    """Stochastic gradient descent, one element after the other or with the sum of all."""
    if at_once:
        total = lambda w: sum(loss_of(w, indices) for indices in ELEMENTS)  # noqa: E731
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, jax.grad(total)(weights))
    for indices in ELEMENTS:
        gradients = jax.grad(loss_of)(weights, indices)
        weights = jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients)
    return weights


@pytest.mark.parametrize("program", [looped, pipelined])
def test_numbers_stay_and_time_falls(program: Callable[..., Any]) -> None:
    expected = by_hand(WEIGHTS, at_once=program is pipelined)
    cycles: list[float] = []
    for is_on in (False, True):
        options = dict.fromkeys(("combine_matmuls", "combine_embedding_lookups"), is_on)
        configured(2 if program is pipelined else 1, **options)
        lowered = ipu.compile(program, name="training").lower(WEIGHTS)
        cycles.append(lowered.report().cycles)
        got = lowered.compile()(WEIGHTS)
        got = jax.tree.leaves(got[0] if isinstance(got, (tuple, list)) else got)
        for one, other in zip(got, jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert cycles[1] < cycles[0]
