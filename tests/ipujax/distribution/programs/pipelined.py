"""A network of two stages that is trained as a pipeline."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from shared import BATCHES, STEPS, configured, own_data, tell

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

configured(ipus=2)
total = ipu.popdist.getNumTotalReplicas()
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(own_data(STEPS * BATCHES * total))
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
random = np.random.default_rng(1)
weights = {
    "in": random.normal(size=(8, 16)).astype(np.float32),
    "out": random.normal(size=(16, 8)).astype(np.float32),
}
optimizer = ipu.cross_replica_optimizer.CrossReplicaOptimizer(optax.sgd(0.1))


def first(weights: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.tanh(x @ weights["in"]), x


def last(weights: Any, hidden: jax.Array, x: jax.Array) -> jax.Array:
    return ((hidden @ weights["out"] - x) ** 2).mean()


@ipu.compile
def train(weights: Any) -> Any:
    return pipeline(
        [first, last],
        BATCHES,
        repeat_count=STEPS,
        variables=weights,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optimizer, loss),
        replicated_optimizer_state_sharding=True,
    )


tell(train(weights), outfeed.dequeue())
