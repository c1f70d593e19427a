"""A network whose parts have names, as libraries for JAX give them."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from ipujax.driver.compile_stages import Lowered
from tests.ipujax.feeding import infeed
from tests.ipujax.reporting import configured, struct

CHANNELS = 16
BLOCKS = 3


def resnet() -> Lowered:
    """A training step of a small ResNet: `train_step`, in it `stem`, `block0` and so on, in these
    `conv0`, `norm0` and so on; the update is in `sgd`."""
    configured(1)
    kernel = struct(3, 3, CHANNELS, CHANNELS, dtype=jnp.float16)
    weights = {
        "stem": struct(3, 3, 4, CHANNELS, dtype=jnp.float16),
        "blocks": [[kernel, kernel] for _ in range(BLOCKS)],
        "head": struct(CHANNELS, 10, dtype=jnp.float16),
    }
    images = struct(4, 32, 32, 4, dtype=jnp.float16)
    labels = struct(4, 10, dtype=jnp.float16)
    return ipu.compile(_step, name="resnet").lower(weights, images, labels)


def _step(weights: Any, images: Any, labels: Any) -> Any:
    with jax.named_scope("train_step"):
        value, gradients = jax.value_and_grad(_loss)(weights, images, labels)
        with jax.named_scope("sgd"):
            weights = jax.tree.map(lambda w, g: w - jnp.float16(0.1) * g, weights, gradients)
    return weights, value


def _loss(weights: Any, images: Any, labels: Any) -> Any:
    with jax.named_scope("stem"):
        x = jax.nn.relu(_convolution("conv", images, weights["stem"]))
    for number, kernels in enumerate(weights["blocks"]):
        with jax.named_scope(f"block{number}"):
            x = _block(x, kernels)
    with jax.named_scope("head"):
        logits = x.mean((1, 2)) @ weights["head"]
        return -(jax.nn.log_softmax(logits) * labels).sum(-1).mean()


def _block(x: Any, kernels: Any) -> Any:
    y = x
    for number, kernel in enumerate(kernels):
        y = _convolution(f"conv{number}", y, kernel)
        with jax.named_scope(f"norm{number}"):
            centred = y - y.mean((0, 1, 2))
            y = centred * jax.lax.rsqrt(jnp.square(centred).mean((0, 1, 2)) + jnp.float16(1e-3))
        y = jax.nn.relu(y)
    return x + y


def _convolution(name: str, x: Any, kernel: Any) -> Any:
    with jax.named_scope(name):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )


def looped() -> Lowered:
    """200 training steps of two layers, `first` and `second`, on batches of 32 from an infeed."""
    configured(1)
    batches = infeed(lambda: itertools.repeat(np.zeros((32, 256), np.float32)))

    def loss(weights: Any, x: Any) -> Any:
        with jax.named_scope("first"):
            x = jnp.tanh(x @ weights[0])
        with jax.named_scope("second"):
            return jnp.mean((x @ weights[1]) ** 2)

    def step(weights: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    @ipu.compile
    def train(weights: Any) -> Any:
        return ipu.loops.repeat(200, step, [weights], infeed_queue=batches)

    return train.lower([struct(256, 256), struct(256, 256)])


def layered() -> Lowered:
    """16 training steps of a pipeline: `layer0` to `layer5` on two IPUs, 12 micro-batches."""
    configured(2)

    def loss(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with ipu.scopes.pipeline_stage(number // 3), jax.named_scope(f"layer{number}"):
                x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    gradient = ipu.pipelining_ops.value_and_grad(loss, micro_batches=12)

    @ipu.compile
    def train(weights: Any, x: Any) -> Any:
        def step(weights: Any) -> Any:
            _, gradients = gradient(weights, x)
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

        return ipu.loops.repeat(16, step, [weights])

    return train.lower([struct(64, 64)] * 6, struct(12 * 16, 64))
