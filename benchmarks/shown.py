"""Programs whose reports are looked at: a small one, a pipeline of 16 IPUs, very long ones."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from ipujax.driver.compile_stages import Lowered
from validation.models import training

WIDTH = 64
STEPS_PER_LAYER = 7  # of `deep`: of a matmul two supersteps, of what follows one


def small() -> Lowered:
    """Two dense layers trained in a loop between an infeed and an outfeed, on one IPU."""
    _configure(1)
    batch = (np.zeros((16, WIDTH), np.float32), np.zeros((16, 10), np.float32))
    elements = ipu.ipu_infeed_queue.IPUInfeedQueue(lambda: itertools.repeat(batch))
    losses = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def loss(weights: Any, x: Any, y: Any) -> Any:
        hidden = jnp.tanh(x @ weights["into"])
        return jnp.mean((hidden @ weights["out"] - y) ** 2)

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        losses.enqueue(value)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads)

    @ipu.compile
    def train(weights: Any) -> Any:
        return ipu.loops.repeat(100, step, [weights], infeed_queue=elements)

    into = jax.ShapeDtypeStruct((WIDTH, 2 * WIDTH), jnp.float32)
    out = jax.ShapeDtypeStruct((2 * WIDTH, 10), jnp.float32)
    return train.lower({"into": into, "out": out})


def pipeline(ipus: int = 16, micro_batches: int = 68, layers: int = 24) -> Lowered:
    """BERT-Large, recomputed, over so many IPUs: a stage more, as the loss is back on the first."""
    _configure(ipus, allow_recompute=True)
    # On the tiles: from streaming memory, the optimizer's state would take most of the call.
    step = training.bert_large(
        layers, 2, micro_batches, ipus, offload_weight_update_variables=False
    )
    return ipu.compile(step.function, name="bert").lower(*step.args)


def many_tasks(micro_batches: int = 148_000) -> Lowered:
    """A pipeline of four small stages: 17 million steps are in a million tasks."""
    ipus = 4
    _configure(ipus)
    step = training.many(ipus, micro_batches, width=16)
    return ipu.compile(step.function, name="many_tasks").lower(*step.args)


def deep(steps: int = 100_000) -> Lowered:
    """A network of so many layers that its program has at least `steps` steps, none in a loop."""
    _configure(1)
    layers = -(-steps // STEPS_PER_LAYER) + 1

    @ipu.compile
    def deep(x: Any, weights: Any) -> Any:
        for number in range(layers):
            x = jnp.tanh(x @ weights) * (number + 1.0)
        return x

    square = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    return deep.lower(square, square)


def _configure(ipus: int, **options: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in options.items():
        setattr(config, name, value)
    config.configure_ipu_system()
