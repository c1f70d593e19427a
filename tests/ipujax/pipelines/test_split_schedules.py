"""Schedules that split the backward pass train as the plain step does, however stages lie."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from tests.ipujax.pipelining import ENGINES

STAGES = 4
IPUS = {
    "zero_bubble_h1": [0, 1, 2, 3],
    "zero_bubble_h2": [0, 1, 2, 3],
    "interleaved_zero_bubble": [0, 1, 0, 1],
    "zbv": [0, 1, 1, 0],
    "v_half": [0, 1, 1, 0],
    "v_min": [0, 1, 1, 0],
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", IPUS)
def test_gradients_are_those_of_the_plain_step(name: str, engine: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = max(IPUS[name]) + 1
    config.configure_ipu_system()
    random = np.random.default_rng(3)
    weights = [random.normal(size=(8, 8), scale=0.5).astype(np.float32) for _ in range(STAGES)]
    inputs = random.normal(size=(16, 8)).astype(np.float32)

    def loss_fn(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for stage, w in enumerate(weights):
            with ipu.scopes.pipeline_stage(stage):
                x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    grad_fn = ipu.pipelining_ops.value_and_grad(
        loss_fn, micro_batches=8, schedule=name, device_mapping=IPUS[name]
    )
    loss, gradients = ipu.compile(grad_fn, engine=engine)(weights, inputs)
    plain_loss, plain_gradients = jax.jit(jax.value_and_grad(loss_fn))(weights, inputs)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    for found, plain in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(found, plain, rtol=1e-6, atol=1e-6 * np.abs(plain).max())
