"""A sum over replicas of an array so large that two processes exchange their summands."""

from __future__ import annotations

import jax
import numpy as np
from shared import configured, tell

import ipujax as ipu

configured(ipus=1)
index = ipu.popdist.getInstanceIndex()
rows = [np.random.default_rng(seed).normal(size=(160, 160)).astype(np.float32) for seed in (0, 1)]
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([rows[index]] * 3)
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def step(total: jax.Array, x: jax.Array) -> jax.Array:
    total = total + ipu.cross_replica_ops.cross_replica_sum(x)
    outfeed.enqueue(total.sum())
    return total


@ipu.compile
def add_up(total: jax.Array) -> jax.Array:
    return ipu.loops.repeat(3, step, [total], infeed_queue=infeed)


tell(add_up(np.zeros_like(rows[0])), outfeed.dequeue())
