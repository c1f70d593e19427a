"""Training a small convolutional network in a device loop, against a loop of jitted steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row

STEPS, LAYERS = 50, 6
IMAGES = (8, 16, 16, 16)


def rows() -> list[Row]:
    """Six 3x3 convolutions with gradients; the gradients are slow inside XLA's CPU loops."""
    parameters = [
        jax.random.normal(jax.random.key(i), (3, 3, IMAGES[-1], IMAGES[-1])) / 12
        for i in range(LAYERS)
    ]
    images = [np.ones(IMAGES, np.float32) * (i % 3) for i in range(STEPS)]
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(images)
    restart = infeed.initializer
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(parameters: Any, x: Any) -> Any:
        parameters, loss = _train(parameters, x)
        outfeed.enqueue(loss)
        return parameters

    @ipu.compile
    def run(parameters: Any) -> Any:
        return ipu.loops.repeat(STEPS, body, [parameters], infeed)

    def streamed() -> None:
        restart()
        jax.block_until_ready(run(parameters))
        outfeed.dequeue()

    step = jax.jit(_train)

    def stepwise() -> None:
        state = parameters
        losses = []
        for x in images:
            state, loss = step(state, x)
            losses.append(loss)
        jax.block_until_ready((state, losses))

    what = "repeat training 6 convolutions / loop of jitted steps"
    return [row(what, 1.1, streamed, stepwise, pairs=15)]


def _train(parameters: list[Any], x: Any) -> tuple[list[Any], Any]:
    def loss(parameters: list[Any]) -> Any:
        h = x
        for kernel in parameters:
            h = jax.lax.conv_general_dilated(
                h, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            h = jnp.tanh(h)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(parameters)
    return [p - 0.01 * g for p, g in zip(parameters, gradients, strict=True)], value
