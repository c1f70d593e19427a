"""Programs with what users change to see what it does: batch, width, number type and so on."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import optax

import ipujax as ipu
from ipujax.pipelining_ops import value_and_grad
from ipujax.report import Report
from ipujax.scopes import ipu_shard, pipeline_stage
from tests.ipujax.reporting import configured, struct


def network(
    *,
    batch: int = 64,
    dtype: Any = jnp.float32,
    layers: int = 3,
    width: int = 128,
    scoped: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    recompute: bool = False,
    name: str = "train",
) -> Report:
    """A training step of a network of layers, each in a scope, on one IPU."""
    configured(1)
    transformation = optimizer or optax.sgd(0.1)

    def loss(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with jax.named_scope(f"layer{number}" if scoped else "net"):
                x = jax.nn.relu(x @ w)
        return jax.nn.log_softmax(x).sum(-1).mean()

    def step(weights: Any, state: Any, x: Any) -> Any:
        call = jax.checkpoint(loss) if recompute else loss
        value, gradients = jax.value_and_grad(call)(weights, x)
        updates, state = transformation.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    sizes = [96] + [width] * (layers - 1) + [10]
    shapes = [struct(m, n, dtype=dtype) for m, n in itertools.pairwise(sizes)]
    state = jax.eval_shape(transformation.init, shapes)
    arguments = shapes, state, struct(batch, 96, dtype=dtype)
    return ipu.compile(step, name=name).lower(*arguments).report()


def sharded(ipus: int) -> Report:
    """The gradients of four layers over so many IPUs."""
    configured(ipus)

    def loss(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with ipu_shard(number * ipus // len(weights)):
                x = jnp.tanh(x @ w)
        return (x**2).mean()

    return ipu.compile(jax.grad(loss)).lower([struct(64, 64)] * 4, struct(16, 64)).report()


def pipelined(recompute: bool) -> Report:
    """The gradients of four layers in a pipeline of two IPUs."""
    configured(2, allow_recompute=recompute)

    def loss(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with pipeline_stage(number // 2):
                x = jnp.tanh(x @ w)
        return (x**2).mean()

    step = value_and_grad(loss, micro_batches=8)
    return ipu.compile(step).lower([struct(64, 64)] * 4, struct(128, 64)).report()
