"""Training a model, 6.4: as many replicas as the IPUs give, their updates averaged.

The model is sharded over two IPUs. On a device of eight, the graph is replicated four times:
nobody states the factor.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from ipujax.cross_replica_ops import cross_replica_sum

LEARNING_RATE = 0.25
STEPS = 3

Element = tuple[np.ndarray, np.ndarray]


def elements(count: int) -> list[Element]:
    rng = np.random.default_rng(0)
    shapes = itertools.repeat(((2, 4), (2, 1)), count)
    return [(rng.normal(size=a).astype("f"), rng.normal(size=b).astype("f")) for a, b in shapes]


def initial_weights() -> dict[str, jax.Array]:
    return {"w1": jnp.full((4, 3), 0.1), "w2": jnp.full((3, 1), 0.2)}


def loss_of(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    with ipu.scopes.ipu_shard(0):
        hidden = jnp.tanh(x @ weights["w1"])
    with ipu.scopes.ipu_shard(1):
        return jnp.mean((hidden @ weights["w2"] - y) ** 2)


def averaged_over_replicas(gradient: jax.Array) -> jax.Array:
    return cross_replica_sum(gradient) / cross_replica_sum(jnp.ones(()))


def main(num_ipus: int = 8) -> tuple[Any, np.ndarray]:
    """Gives the trained weights, and the losses as `[STEPS, (replicas)]`."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = num_ipus
    cfg.configure_ipu_system()

    # Every replica takes elements of its own.
    infeed_queue = ipu.ipu_infeed_queue.IPUInfeedQueue(elements(STEPS * num_ipus // 2))
    outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def step(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        outfeed_queue.enqueue(loss)
        gradients = jax.tree.map(averaged_over_replicas, gradients)
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, weights, gradients)

    @ipu.compile
    def train(weights: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return ipu.loops.repeat(STEPS, step, [weights], infeed_queue)

    weights = train(initial_weights())
    losses = outfeed_queue.dequeue()
    print("losses of every step and replica", losses)
    return weights, losses


if __name__ == "__main__":
    main()
