"""A linear model that is trained in a loop on the device."""

from __future__ import annotations

import jax
import numpy as np
from shared import STEPS, configured, own_data, tell

import ipujax as ipu

configured(ipus=1)
total = ipu.popdist.getNumTotalReplicas()
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(own_data(STEPS * total))
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def step(weights: jax.Array, x: jax.Array) -> jax.Array:
    def loss_of(weights: jax.Array) -> jax.Array:
        return ((x @ weights - x[:, :1]) ** 2).mean()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    outfeed.enqueue(loss)
    return weights - 0.05 * ipu.cross_replica_ops.cross_replica_sum(gradient) / total


@ipu.compile
def train(weights: jax.Array) -> jax.Array:
    return ipu.loops.repeat(STEPS, step, [weights], infeed_queue=infeed)


tell(train(np.zeros((8, 1), np.float32)), outfeed.dequeue())
